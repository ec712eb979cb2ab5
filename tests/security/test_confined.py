"""In CI what reads strangers' files is a child with limits, and says so where it meets them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_LAUNCH = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B --beta 0.04"
_PROGRAM = """
import sys
from grpo_doctor.cli import check, confined, main
vars(confined).update({})
if "MOST_BYTES" in {}:
    check.execute = lambda options: len(bytearray(2 << 30))
sys.exit(main())
"""


def _check(
    folder: Path, *options: str, limits: dict[str, int], **variables: str
) -> tuple[int, str]:
    code = _PROGRAM.format(limits, limits)
    environment = {k: v for k, v in os.environ.items() if k != "CI"} | variables
    done = subprocess.run(
        [sys.executable, "-c", code, "check", "--gpus", "8xA100-80G", *options, "--", _LAUNCH],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("limits", [{"MOST_BYTES": 1 << 30}, {"MOST_S": 0}])
def test_a_limit_is_one_sentence_and_no_success(tmp_path: Path, limits: dict[str, int]) -> None:
    code, said = _check(tmp_path, limits=limits, CI="true")
    assert code == 1
    assert len(said.strip().splitlines()) == 1
    assert said.startswith("grpo-doctor: ")


def test_the_format_of_a_pull_request_has_the_same_limits(tmp_path: Path) -> None:
    code, said = _check(tmp_path, "--format", "github", limits={"MOST_S": 0})
    assert (code, said.count("\n")) == (1, 1)


def test_within_its_limits_the_child_answers_the_same(tmp_path: Path) -> None:
    assert _check(tmp_path, limits={}, CI="true") == _check(tmp_path, limits={})
