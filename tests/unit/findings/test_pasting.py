"""No fix is a flag that the command of the run would refuse: all rules, many launches."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor.findings import RunView
from grpo_doctor.findings.engine import ask
from grpo_doctor.findings.rule import Finding, Fix
from grpo_doctor.findings.rules import ALL
from grpo_doctor.launches.place import place_of
from grpo_doctor.trace.model import Trace
from tests.unit.findings.registry import EXAMPLES

OWN = """
import argparse
from trl import GRPOConfig, GRPOTrainer
argparse.ArgumentParser().add_argument("--model")
config = GRPOConfig(max_completion_length=32)
"""
PARSED = """
from trl import GRPOConfig, TrlParser
class Mine(GRPOConfig): ...
arguments = TrlParser((Mine,)).parse_args_and_config()
"""
FLAG = re.compile(r"(?:^|\s)--[a-z]")
VERSIONS = {"trl": "1.16.0", "ms-swift": "4.6.0", "verl": "0.9.1", "openrlhf": "0.11.2"}
# A framework with a command and what it takes: options, Hydra's overrides, or none (code).
LAUNCHES = {
    "trl grpo --model_name_or_path m": ("trl", "options"),
    "accelerate launch --num_processes 2 own.py --model m": ("trl", "code"),
    "torchrun --nproc_per_node 2 own.py": ("trl", "code"),
    "torchrun --nproc_per_node 2 parsed.py --max_steps 3": ("trl", "options"),
    "python gone.py": ("trl", "code"),
    "": ("trl", "code"),
    "swift rlhf --rlhf_type grpo --model m": ("ms-swift", "options"),
    "python own.py": ("ms-swift", "code"),
    "bash train.sh": ("ms-swift", "options"),
    "python -m verl.trainer.main_ppo trainer.nnodes=1": ("verl", "overrides"),
    "python -m openrlhf.cli.train_ppo_ray --pretrain m": ("openrlhf", "options"),
}


@pytest.fixture(scope="module", autouse=True)
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("job")
    (folder / "own.py").write_text(OWN, encoding="utf-8")
    (folder / "parsed.py").write_text(PARSED, encoding="utf-8")
    (folder / "train.sh").write_text("swift rlhf --rlhf_type grpo --model m\n", encoding="utf-8")
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


def started(trace: Trace, command: str, framework: str) -> Trace:
    run = replace(
        trace.run, command=tuple(command.split()), framework=framework,
        framework_version=VERSIONS[framework], started_unix_ns=10**10,
    )  # fmt: skip
    return replace(trace, run=run)


def of_the_trainer(fix: Fix) -> bool:
    return bool(fix.knob and fix.pasted) and not fix.where.startswith("for `")


@pytest.mark.parametrize("command", LAUNCHES)
def test_what_is_printed_is_what_the_command_takes(command: str) -> None:
    framework, takes = LAUNCHES[command]
    fixes = 0
    for rule in ALL:
        trace = started(EXAMPLES[rule.RULE.id][0]().build(), command, framework)
        answer = ask(rule, RunView.of(trace))
        for fix in answer.fixes if isinstance(answer, Finding) else ():
            if not of_the_trainer(fix):
                continue
            fixes += 1
            assert fix.typed in fix.spelling
            if fix.form == "config file":
                assert trace.run.knobs.get("deepspeed.preset"), fix.spelling
            elif takes == "code":
                assert fix.form == "python argument", fix.spelling
                assert not FLAG.search(fix.spelling)
                compile(f"Config({fix.typed})", "typed", "eval")
                assert fix.where
            else:
                assert fix.form == "flag"
                assert FLAG.search(fix.typed) if takes == "options" else "=" in fix.typed
            uses_none = trace.run.knobs.get("vllm.use") is False
            assert not (uses_none and fix.knob and re.match(r"vllm\.(?!use|mode)", fix.knob))
    assert fixes > 20


@pytest.mark.parametrize(("command", "form", "where"), [
    ("torchrun --nproc_per_node 2 own.py", "python argument", "in GRPOConfig(...), own.py:5"),
    ("python own.py --max_steps 3", "python argument", "in GRPOConfig(...), own.py:5"),
    ("python gone.py", "python argument", "in GRPOConfig(...)"),
    ("python parsed.py", "flag", ""),
    ("trl grpo", "flag", ""),
    ("bash gone.sh", "python argument", "as an argument of GRPOConfig"),
])  # fmt: skip
def test_where_a_setting_goes(scripts: Path, command: str, form: str, where: str) -> None:
    place = place_of(command.split(), "trl", (scripts,), 10**10)
    assert (place.form, place.where) == (form, where)


def test_a_script_that_changed_since_says_nothing(scripts: Path) -> None:
    assert place_of(["python", "own.py"], "trl", (scripts,), 5).where == "in GRPOConfig(...)"
    assert place_of(["bash", "train.sh"], "ms-swift", (scripts,), 5).where == "in train.sh"


def test_an_option_that_was_given_is_taken() -> None:
    trace = started(
        EXAMPLES["GD051"][0]().build(), "python own.py --max_completion_length 9", "trl"
    )
    answer = ask(next(rule for rule in ALL if rule.RULE.id == "GD051"), RunView.of(trace))
    assert isinstance(answer, Finding)
    forms = {fix.knob: fix.form for fix in answer.fixes if fix.pasted}
    assert forms.pop("rollout.max_completion_length") == "flag"
    assert set(forms.values()) <= {"python argument"}
