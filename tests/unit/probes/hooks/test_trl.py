"""TRL's trainer in its own shape: GRPO's phases within one step."""

from __future__ import annotations

from pathlib import Path

from tests.unit.probes.hooks.hooked_job import TRAINER, recorded, run_job, span_names

GRPO = """
from transformers.trainer import Trainer

class GRPOTrainer(Trainer):
    def __init__(self, reward_funcs):
        super().__init__(steps=2, reward_funcs=reward_funcs)

    def training_step(self):
        self._prepare_inputs()
        return super().training_step()

    def _prepare_inputs(self):
        self._generate_and_score_completions()

    def _generate_and_score_completions(self):
        self._tokenize_prompts()
        self._generate()
        self._get_per_token_logps_and_entropies(self.state)
        self._calculate_rewards()

    def _tokenize_prompts(self): ...
    def _generate(self): ...
    def _get_per_token_logps_and_entropies(self, model): ...

    def _calculate_rewards(self):
        return [reward() for reward in self.reward_funcs]

    def compute_loss(self):
        self._get_per_token_logps_and_entropies(self.state)
"""
JOB = """
from trl.trainer.grpo_trainer import GRPOTrainer

class Judge:
    def __call__(self):
        return 1.0

def accuracy():
    return 0.0

GRPOTrainer([accuracy, Judge()]).train()
"""


def test_a_step_has_the_phases_of_grpo_in_their_order(tmp_path: Path) -> None:
    modules = {"transformers.trainer": TRAINER, "trl.trainer.grpo_trainer": GRPO}
    result = run_job(tmp_path, JOB, modules=modules)
    assert result.returncode == 0, result.stderr
    trace = recorded(tmp_path)
    names = span_names(trace)
    assert names[-10:] == [  # of the second step
        "dataload", "rollout", "rollout/encode", "rollout/generate", "logprob/old",
        "reward", "reward/accuracy", "reward/Judge", "train", "train/loss",
    ]  # fmt: skip
    assert trace.run.framework == "trl"
