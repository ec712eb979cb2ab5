"""Settings of Python scripts, which are never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.launches import read

SCRIPT = """
import argparse
from trl import GRPOConfig, GRPOTrainer
parser = argparse.ArgumentParser()
parser.add_argument("--group-size", type=int, default=4)
parser.add_argument("--vllm", action="store_true")
parser.add_argument("-m", "--model", default="m")
parser.add_argument("--beta", type=own)
options = parser.parse_args()
config = GRPOConfig(
    "o", num_generations=options.group_size, use_vllm=options.vllm, beta=options.beta
)
GRPOTrainer(model=options.model, args=config)
"""


@pytest.mark.parametrize(
    ("words", "group", "vllm", "model"),
    [
        ("", 4, False, "m"),
        ("--group-size 8 --vllm --model n", 8, True, "n"),
        ("--group-size x --beta 0.5", None, False, "m"),
    ],
)
def test_a_script_with_arguments_of_its_own(
    words: str, group: int | None, vllm: bool, model: str, tmp_path: Path
) -> None:
    (tmp_path / "t.py").write_text(SCRIPT)
    launch = read([f"python t.py {words}"], environment={}, cwd=tmp_path)
    found: list[Any] = [
        launch.settings.get(name) for name in ("rollout.num_generations", "vllm.use", "model.name")
    ]
    assert found == [group, vllm, model]
    computed = [problem.text for problem in launch.problems if "computes" in problem.text]
    assert bool(computed) is (group is None)
