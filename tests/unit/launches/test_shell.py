"""Bash scripts as people write them, read without running them."""

from __future__ import annotations

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


def test_the_environment_of_a_command_is_what_was_exported_and_its_own_prefix() -> None:
    script = "export A=1 B=2\nC=3\nD=4 train\nother"
    first, second = read(script)
    assert {name: word.text for name, word in first.environment.items()} == {
        "A": "1",
        "B": "2",
        "D": "4",
    }
    assert set(second.environment) == {"A", "B"}


def test_the_first_branch_of_an_if_counts_and_later_ones_do_not_change_it() -> None:
    script = 'if [ "$1" = big ]; then\n  LEN=8192\nelse\n  LEN=1024\nfi\ntrain --len $LEN\n'
    assert words(script)[-1] == ["train", "--len", "8192"]


def test_the_folder_of_a_script_is_known() -> None:
    script = 'HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\ntrain $HERE/c.yaml'
    (command,) = commands(script, "/jobs/run.sh", {})
    assert command.words[-1].text == "/jobs/c.yaml"


def test_redirections_pipes_here_documents_and_background_are_no_words() -> None:
    script = "train --x 1 2>&1 | tee log &\ncat <<EOF > f\ntrain --y\nEOF\nwait\n"
    assert words(script) == [["train", "--x", "1"], ["tee", "log"], ["cat"], ["wait"]]


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
