"""What each command refuses: with one sentence, its exit code, and nothing written."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from grpo_doctor.cli import main
from grpo_doctor.trace.write import write_trace
from tests.unit.cli.attached import Captured
from tests.unit.findings.example_runs import offloaded

# Said by the parser, which ends the program.
MISTYPED = [
    ("", "usage: grpo-doctor"),
    ("--", "usage: grpo-doctor"),
    ("rapport", "Did you mean report?"),
    ("help rapport", "Did you mean report?"),
    ("bogus", "'bogus' is none of run, check"),
    ("run --nprok 3", "Did you mean --nproc?"),
    ("run --max_steps 3", "grpo-doctor run -- --max_steps 3"),
    ("run --on-hang kill", "'kill' is none of report, stop"),
    ("report x --jsn", "Did you mean --json?"),
    ("report x --format txt", "Did you mean text?"),
    ("report x --fail-on hi", "Did you mean high?"),
    ("schema rule", "'rule' is none of attach, check, compare"),
    ("attach x", "PID"),
    ("attach --secnds 3", "Did you mean --seconds?"),
    ("attach --out ''", "--output"),
    ("attach --html=", "--html"),
    ("attach --replay ''", "--replay"),
    ("treat --budget soon -- true", "30m, 90s or 2h"),
]
REFUSED = [
    ("run --max-mb 0 -- true", 2, "--max-mb 0: at least 1 MiB is needed"),
    ("run --nproc 0", 2, "at least 1 rank is needed"),
    ("run --nproc 2 -- true", 2, "pass the number of ranks to your own launcher"),
    ("run --hz 0.009 -- true", 2, "give a rate from 0.01 to 100"),
    ("run --hz 100.1 -- true", 2, "give a rate from 0.01 to 100"),
    ("run --stop-after 0 -- true", 2, "give at least 1 step"),
    *(
        (f"run --{limit}={seconds} -- true", 2, "give at least 1 second")
        for limit in ("hang-after", "at-most")
        for seconds in ("0", "0.9", "-3", "nan", "inf")
    ),
    ("run --join run", 2, "give the server's command"),
    ("run --join run -- --model m", 2, "give the server's command"),
    ("run --join run -o other -- true", 2, "--join takes no -o"),
    ("run --join notes -- true", 2, "is not a run directory"),
    ("attach 0", 2, "not a PID"),
    ("attach 1 --dumps /tmp", 2, "mutually exclusive; give one"),
    ("attach --replay a --dumps b", 2, "mutually exclusive; give one"),
    ("attach --replay a 4711", 2, "mutually exclusive; give one"),
    ("attach --slurm 7 --ray", 2, "mutually exclusive; give one"),
    ("attach --json -o -", 2, "both write to standard output"),
    ("attach --seconds 0", 2, "give 0.2 to 60 seconds"),
    ("attach --replay /nowhere/at/all", 2, "/nowhere/at/all"),
    ("attach --dumps /nowhere/at/all", 2, "no such folder"),
    ("attach --out hang.zip", 2, "one file called .tar.gz"),
    ("attach -- python", 2, "no arguments after `--`"),
    ("watch nowhere", 2, "nowhere is not a run directory"),
    ("watch --port 70000", 2, "give a port from 1 to 65535"),
    ("watch 4194305", 2, "there is no process 4194305"),
    ("report", 2, "grpo-doctor-out/ has no run; name one"),
    ("report trace.json --json --format html", 2, "give one of them"),
    ("report trace.json -- python", 2, "no arguments after `--`"),
    ("report trace.json --price cheap", 2, "give an amount"),
    ("report trace.json -o trace.json", 2, "is the recording itself"),
    ("report . --json -o trace.json", 2, "is the recording itself"),
    ("report . --jobs 0", 2, "--jobs 0: give 1 or more."),
    ("report --ray notes", 2, "give the run first: report notes --ray"),
    ("compare trace.json nowhere.json", 3, "nowhere.json"),
    ("compare trace.json trace.json --html trace.json", 2, "is the recording itself"),
    ("compare trace.json trace.json --html -", 2, "--html takes a file"),
    *(
        (f"compare trace.json trace.json --fail-on-regression={limit}", 2, "0 or more")
        for limit in ("-1", "nan", "inf")
    ),
    ("rule needless-ofload", 2, "Did you mean needless-offload?"),
    ("rule GD4", 2, "Did you mean GD004?"),
    ("rule GL999", 2, "`grpo-doctor rule launch` lists all"),
    ("whatif no.json --set offload.model=false", 3, "no.json"),
    *(
        (f"whatif trace.json --set {setting}", 2, words)
        for setting, words in (
            ("ofload.optimizer=false", "Did you mean offload.optimizer?"),
            ("offload.optimizer=maybe", "takes true or false"),
            ("offload.optimizer=", "takes true or false"),
            ("offload.optimizer", "give SETTING=VALUE"),
            ("dataload.num_workers=-3", "takes no number below 0"),
            ("dataload.num_workers=none", "takes a whole number"),
            ("train.micro_batch=2.5", "takes a whole number"),
            ("sync.move_model_batches=some", "takes a whole number"),
            ("offload.optimizer=false --set offload_optimizer=true", "is set twice"),
        )
    ),
    ("diagnose evidence.json.gz", 2, "attach --replay"),
    ("diagnose run.json", 2, "report"),
    ("diagnose empty", 2, "no text to read"),
    ("diagnose absent", 2, "can't read absent"),
    ("selftest stragler", 2, "There are: healthy, straggler"),
    ("selftest healthy --keep .", 2, "already a healthy"),
    ("treat", 2, "give the command after `--`"),
    ("treat -- true", 2, "no training command"),
    ("treat -- python train.py", 2, "the settings are in GRPOConfig"),
    ("treat -- swift rollout --model m", 2, "serves rollouts"),
    ("treat -- swift sft --model m --dataset d", 2, "SFT trains on given answers"),
    ("treat -- swift rlhf --rlhf_type grpo", 9, "nothing was started"),
    ("treat -o . -- --dataloader_num_workers 0", 2, "has other files"),
]
SCRIPT = """\
from trl import GRPOConfig, GRPOTrainer
GRPOTrainer("Qwen/Qwen2.5-0.5B", reward_funcs=len, args=GRPOConfig("out"), train_dataset=[]).train()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    write_trace(offloaded().build(), folder / "trace.json")
    (folder / "healthy").mkdir()
    (folder / "notes").mkdir()
    (folder / "notes/todo.txt").touch()
    for name in ("evidence.json.gz", "run.json", "empty"):
        (folder / name).touch()
    (folder / "train.py").write_text(SCRIPT)
    return folder


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("line", "code", "words"), REFUSED)
def test_what_makes_no_sense_is_refused(
    line: str, code: int, words: str, place: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    monkeypatch.chdir(place)
    before = files_in(place)
    assert main(shlex.split(line)) == code
    output, said = capfd.readouterr()
    assert output == ""
    assert words in said
    assert files_in(place) == before


@pytest.mark.parametrize(("line", "words"), MISTYPED)
def test_what_is_mistyped_gets_the_nearest(line: str, words: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
