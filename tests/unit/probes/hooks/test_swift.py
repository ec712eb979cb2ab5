"""ms-swift's phases, in the shapes that it had."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.knobs import canonical
from tests.unit.probes.hooks.hooked_job import recorded, run_job, span_names, step_numbers
from tests.unit.probes.hooks.swift_standin import VERSION_3_6, VERSION_3_12, VERSION_4_6

PROGRAM = """
from model import Model
from PATH import GRPOTrainer
from LAUNCH import SwiftSft

class dtype:
    def __str__(self): return "torch.float32"

class Arguments:
    def __init__(self):
        self.tuner_type, self.torch_dtype, self.sleep_level = "lora", dtype(), 1
        self.vllm_gpu_memory_utilization, self.lora_rank = 0.5, 16
        self.model_meta, self.reward_funcs = object(), ["length"]
        self.gradient_checkpointing = True

class Length:
    def __call__(self, samples): return [1.0]

class Judge:
    async def __call__(self, samples): return [1.0]

def short(samples): return [0.0]

class Plugin:
    def __call__(self, inputs): return [0.0]

def trainer(**options):
    rewards = [Length(), Judge(), short][: options.pop("rewards", 3)]
    made = GRPOTrainer(reward_funcs=rewards, **options)
    made.model, made.steps = Model(), 2
    return made
"""
NEW = (VERSION_4_6, "swift.rlhf_trainers", "swift.pipelines.train.sft")
OLD = "swift.trainers.rlhf_trainer"
MIDDLE = (VERSION_3_12, OLD, "swift.llm.train.sft")
OLDEST = (VERSION_3_6, OLD, "swift.llm.train.sft")
GENERATION = ["rollout", "sync", "sync/load", "offload", "rollout/generate", "rollout/postprocess"]
REWARDS = ["reward", "reward/Length", "reward/Judge", "reward/short"]
ENCODED = ["rollout/prepare", "rollout/encode", "logprob/old", "logprob/reference"]


def run(
    folder: Path, version: tuple[Mapping[str, str], str, str], body: str, **environment: str
) -> str:
    modules, path, launch = version
    program = PROGRAM.replace("PATH", path).replace("LAUNCH", launch) + body
    result = run_job(folder, program, modules=modules, environment=environment)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def first_step(folder: Path) -> list[str]:
    names = span_names(recorded(folder))
    return names[: names.index("dataload", 1)]


def job_of(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / "run" / "job.json").read_text())
    return facts


@pytest.mark.parametrize("version", [NEW, MIDDLE], ids=["4.6", "3.12"])
def test_a_step_has_all_its_phases(
    tmp_path: Path, version: tuple[Mapping[str, str], str, str]
) -> None:
    run(tmp_path, version, "SwiftSft(Arguments()).train(trainer())")
    generation = [*GENERATION[:5], "rollout/postprocess", "offload"]
    expected = ["dataload", "train", *generation, *REWARDS, *ENCODED, "train/loss"]
    assert first_step(tmp_path) == expected
    assert step_numbers(recorded(tmp_path)) == [1, 2]


def test_rewards_of_versions_before_3_8_are_a_phase_with_all_that_gathers_them(
    tmp_path: Path,
) -> None:
    run(tmp_path, OLDEST, "SwiftSft(Arguments()).train(trainer(rewards=1))")
    names = first_step(tmp_path)
    assert names[names.index("reward") :] == ["reward", "reward/Length", *ENCODED, "train/loss"]


def test_what_dynamic_sampling_generates_again_is_rollout_and_no_reward(tmp_path: Path) -> None:
    run(tmp_path, NEW, "SwiftSft(Arguments()).train(trainer(resample=True, rewards=1))")
    names = first_step(tmp_path)
    assert [name for name in names if name in ("rollout/generate", "reward", "rollout")] == [
        "rollout", "rollout/generate", "reward", "rollout/generate", "reward",
    ]  # fmt: skip


def test_the_whole_parsed_arguments_are_the_settings(tmp_path: Path) -> None:
    run(tmp_path, NEW, "SwiftSft(Arguments()).train(trainer())")
    job = job_of(tmp_path)
    assert job["framework"] == "ms-swift"
    settings = canonical("ms-swift", "4.6.0", job["config"])
    assert settings["train.type"] == "lora"
    assert settings["train.dtype"] == "float32"
    assert settings["train.lora_rank"] == 16
    assert settings["vllm.sleep_level"] == 1
    assert settings["rollout.num_generations"] == 4
    assert "model_meta" not in job["config"]


def test_nothing_is_set_on_trls_class_that_ms_swift_deleted(tmp_path: Path) -> None:
    output = run(
        tmp_path, NEW,
        "from trl.trainer.grpo_trainer import GRPOTrainer as theirs\n"
        "made = trainer()\nSwiftSft(Arguments()).train(made)\n"
        "print({'__init__', 'log'} & set(vars(theirs)), made.logged)",
    )  # fmt: skip
    assert output == "set() {'loss': 0.5, 'reward': 2.0, 'swift': 1}\n"
