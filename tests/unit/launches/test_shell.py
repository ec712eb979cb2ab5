"""Bash scripts as people write them, read without running them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.launches.shell import commands
from grpo_doctor.launches.words import Command


def read(text: str, **environment: str) -> list[Command]:
    return list(commands(text, "run.sh", environment))


def words(text: str, **environment: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in read(text, **environment)]


def test_a_command_over_several_lines_keeps_the_line_of_each_word() -> None:
    (command,) = read("# comment\nswift rlhf \\\n  --model x \\\n  --beta 0.1 # why\n")
    assert [(word.text, word.source.line) for word in command.words] == [
        *(("swift", 2), ("rlhf", 2), ("--model", 3), ("x", 3), ("--beta", 4), ("0.1", 4)),
    ]


def test_variables_defaults_sums_and_arrays_are_put_in() -> None:
    script = """
    N=${N:-8}; MODEL="Qwen/Qwen2.5-7B"
    DATA=(
        data.train_batch_size=$((N * 128))  # all
        data.path="$HOME/x.parquet"
    )
    DATA+=(data.shuffle=True)
    train "${DATA[@]}" --name ${MODEL##*/}-run --dir "${OUT:-out/$N}" '$N'
    """
    assert words(script, HOME="/root") == [
        [
            *("train", "data.train_batch_size=1024", "data.path=/root/x.parquet"),
            *("data.shuffle=True", "--name", "Qwen2.5-7B-run", "--dir", "out/8", "$N"),
        ]
    ]


def test_a_sum_by_expr_is_worked_out() -> None:
    script = "N=4; train $(expr 16 / $N) `expr $N \\* 2` $(expr $N \\> 2)"
    (command,) = commands(script, None, {})
    assert [word.text for word in command.words] == ["train", "4", "8", ""]


def test_what_only_running_it_would_tell_is_named() -> None:
    (command,) = read("train --a $NOWHERE --b $(nproc) --c `date`")
    unset = {word.source.text: word.unset for word in command.words if word.unset}
    assert unset == {"$NOWHERE": ("NOWHERE",), "$(nproc)": ("$(nproc)",), "`date`": ("`date`",)}


def test_a_variable_is_divided_into_words_of_which_some_are_open() -> None:
    script = 'L="run --n $N --m $((N * 2))"; C="$L x"; srun $C; L=other; $C'
    assert words(script) == [["srun", "run", "--n", "", "--m", "", "x"], ["run --n  --m  x"]]


def test_the_environment_of_a_command_is_what_was_exported_and_its_own_prefix() -> None:
    script = "export A=1 B=2\nC=3\nD=4 train\nother"
    first, second = read(script)
    assert {name: word.text for name, word in first.environment.items()} == {
        "A": "1",
        "B": "2",
        "D": "4",
    }
    assert set(second.environment) == {"A", "B"}


BRANCHES = 'if [ "$X" = big ]; then\n LEN=8192\nelse\n LEN=1024\nfi\n'
CASES = 'case "$X" in\n big|huge) LEN=8192 ;;\n (*) LEN=1024\nesac\n'


@pytest.mark.parametrize("script", [BRANCHES, CASES])
@pytest.mark.parametrize(
    ("start", "text", "unset"),
    [
        ("X=big\n", "8192", ()),
        ("X=small\n", "1024", ()),
        ("X=${X:-big}\n", "8192", ()),
        ("", "", ("LEN = 8192 or 1024",)),
        ("X=$(uname)\n", "", ("LEN = 8192 or 1024",)),
    ],
)
def test_of_branches_the_one_counts_that_runs(
    script: str, start: str, text: str, unset: tuple[str, ...]
) -> None:
    for branches in (script, script.replace("\n", ";").replace(";;;", ";;")):
        (command,) = read(start + branches + "\ntrain $LEN")
        assert [(word.text, word.unset) for word in command.words[1:]] == [(text, unset)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("A=1\nif false; then A=2; elif true; then A=3; else A=4; fi; train $A", "train 3"),
        ("N=9; [[ $N -gt 8 && -n $N ]] && A=2 || A=3; train $A", "train 2"),
        ('[ -z "$A" ] && A=7; [ -n "$B" ] || B=2; train $A $B', "train 7 2"),
        ('if [[ -z "${A}" ]]; then A=1; fi; train $A', "train 1"),
        ('if [ $# -lt 1 ]; then A=none; else A=$1; fi; train "$A"', "train none"),
        ("A=x; [ $A = y ] && { A=z; train no; }; train $A", "train x"),
        ("if [ $((2 * 4)) -eq 8 ] && ! [ a = b ]; then train yes; fi", "train yes"),
        ("L=(a 'b c'); L+=(d); train \"${L[@]}\" ${#L[@]} ${L[1]}", "train a|b c|d 3 b c"),
        ('P=(python -u); "${P[@]}" -m x', "python -u -m x"),
        ("declare -a L=(a b)\nlocal M=(c)\ntrain ${L[@]} ${M[@]}", "train a b c"),
        ("for i in 1 2; do train $i; done", "train 1;train 2"),
        ("for ((i=0; i<2; i++)); do train; done", "train"),
        ("set -- a b; shift; train $1 $# $@", "train b 1 b"),
        ("set -- a b c d e f g h i j; train ${10} $10", "train j a0"),
        ('L=(a b); train "x ${L[*]}" ${L[*]} "${@:1}"', "train x a b|a b"),
        ("go() { train $1; }\ngo a\nfunction to { go $2; }\nto x y", "train a;train y"),
        ("while [ $# -gt 0 ]; do shift; done; while read x; do A=1; done; train", "train"),
        ("A=a; A+=b; train $A ${A^^} ${A/a/c} ${A:+d} ${B:+e}", "train ab AB cb d"),
        ("train $(basename /a/b.sh .sh) $(dirname /a/b)", "train b /a"),
        ("G=0,1,2; train $(echo $G | tr ',' '\\n' | wc -l)", "train 3"),
        ("train ${A:?needed}x 2>&1 | tee log.txt", "train x;tee log.txt"),
        ("if [ -f x ]; then train a; else train b; fi", "train a;train b"),
        ("case a in b) train no;; a) case c in c) train yes;; esac;; esac", "train yes"),
        ("(cd x; train) & wait", "cd x;train;wait"),
        ("cat > c.yaml <<-'E'\n\ta: $A\n\tE\ntrain", "cat;train"),
    ],
)
def test_what_a_shell_would_run(script: str, expected: str) -> None:
    joined = [" ".join(command) for command in words(script)]
    assert joined == expected.replace("|", " ").split(";")


def test_here_documents_and_echo_write_files() -> None:
    script = (
        "N=4\ncat <<EOF > a.yaml\nn: $N\nEOF\ncat > b.json <<'EOF'\n$N\nEOF\n"
        "echo 'x: 1' > c.yaml\ntee d.yaml <<E >/dev/null\ny: 2\nE\ntrain"
    )
    files = dict(read(script)[-1].files)
    assert files.pop("/dev/null", None) in (None, "y: 2\n")
    assert files == {"a.yaml": "n: 4\n", "b.json": "$N\n", "c.yaml": "x: 1\n"}


def test_read_takes_a_here_document() -> None:
    script = "read -r -d '' args <<EOF\na.b \\\n  --x $N\nEOF\nN=2\ndeepspeed --module $args"
    assert words(f"N=1\n{script}") == [["deepspeed", "--module", "a.b", "--x", "1"]]


def test_a_sourced_script_sets_variables(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("export A=1\nB=$C\ngo() { train $B $1; }\n")
    text = "C=3\nsource env.sh\ngo x\n. gone.sh\n"
    (command,) = commands(text, "run.sh", {}, tmp_path)
    assert [word.text for word in command.words] == ["train", "3", "x"]
    assert command.environment["A"].text == "1"


def test_the_folder_of_a_script_is_known() -> None:
    script = 'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\ntrain $HERE/c.yaml'
    (command,) = commands(script, "/jobs/run.sh", {})
    assert command.words[-1].text == "/jobs/c.yaml"


def test_redirections_pipes_here_documents_and_background_are_no_words() -> None:
    script = "train --x 1 2>&1 | tee log &\ncat <<EOF > f\ntrain --y\nEOF\nwait\n"
    assert words(script) == [["train", "--x", "1"], ["tee", "log"], ["cat"], ["wait"]]


@pytest.mark.parametrize(
    ("given", "trained"),
    [
        ("-p m -d x rest", "m x False rest"),
        ("-v -pm --", "m none True"),
        ("-d x -p", " x False"),
        ("-z -- -p m", "none none False -p m"),
        ("", "none none False"),
        ("-vp m rest", "m none True rest"),
    ],
)
def test_a_script_takes_its_options_by_getopts(given: str, trained: str) -> None:
    script = """set -- GIVEN
    p=none; d=none; v=False
    while getopts "p:vd:" o; do
      case $o in p) p=$OPTARG ;; d) d="$OPTARG" ;; v) v=True ;; *) echo bad ;; esac
    done
    shift $((OPTIND - 1))
    train "$p" $d $v $@
    """.replace("GIVEN", given)
    *_, train = read(script)
    assert [word.text for word in train.words[1:]] == trained.split(" ")


@given(st.text(alphabet=" \n\t\\'\"$(){}[]`#;&|<>=+-*/%:@!abX1", max_size=60))
def test_no_text_ends_the_reading_otherwise_than_by_its_end(text: str) -> None:
    list(commands(text, None, {"X": "a b"}))


@pytest.mark.parametrize(
    ("expansion", "text"),
    [
        ("${X#a/}", "b.c.d"),
        ("${X%.d}", "a/b.c"),
        ("${X##a/}", "b.c.d"),
        ("${X%%.d}", "a/b.c"),
        ("${X#.d}", "a/b.c.d"),
        ("${X%a/}", "a/b.c.d"),
        ("${X#*.}", "c.d"),
        ("${X##*.}", "d"),
        ("${X%.*}", "a/b.c"),
        ("${X%%.*}", "a/b"),
        ("${X##*/}", "b.c.d"),
        ("${X%%-*}", "a/b.c.d"),
        ("${X:-other}", "a/b.c.d"),
        ("${Y:-other}", "other"),
        ("${Y-other}", "other"),
        ("$((2 + 3 * 4))", "14"),
        ("$((7 - 2 - 1))", "4"),
        ("$((9 / 2))", "4"),
        ("$((9 % 2))", "1"),
        ("$((-3 + 5))", "2"),
    ],
)
def test_what_bash_puts_in(expansion: str, text: str) -> None:
    assert words(f"X=a/b.c.d; train {expansion}") == [["train", text]]
