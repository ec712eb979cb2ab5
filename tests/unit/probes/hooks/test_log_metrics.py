"""`run --log-metrics`: seconds of phases among what a Trainer logs, and nothing without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from grpo_doctor_probes.hooks.sums import PhaseSums
from tests.unit.probes.hooks.hooked_job import TRAINER, run_job

ASKED = {"GRPO_DOCTOR_LOG_METRICS": "1"}
LOOP = f"""{TRAINER}
    def evaluate(self):
        self.log({{"eval_loss": 0.25}})
"""
# Beside what was logged at each step: what the reward and the rest of the step really took.
JOB = """
import json, sys, time
from transformers.trainer import Trainer

class Logging(Trainer):
    def log(self, logs, start_time=None):
        super().log(logs, start_time)
        rows.append(logs)

    def get_batch_samples(self, iterator, count):
        spend("wait" if rows else "first wait", 0.02)
        return super().get_batch_samples(iterator, count)

def spend(part, seconds):
    begun = time.perf_counter()
    time.sleep(seconds)
    took[part] = took.get(part, 0.0) + time.perf_counter() - begun

def slow():
    spend("reward", 0.1)

rows, took = [], {}
trainer = Logging(reward_funcs=[slow])
trainer.train()
trainer.log({"train_runtime": 1.0})
print(json.dumps([rows, took]))
"""
_ROUNDED_S = 1e-4
MODULES = {"transformers.trainer": LOOP}


def logged(folder: Path, job: str = JOB, **environment: str) -> list[dict[str, float]]:
    return run(folder, job, **environment)[0]


def run(
    folder: Path, job: str = JOB, **environment: str
) -> tuple[list[dict[str, float]], dict[str, float]]:
    folder.mkdir(exist_ok=True)
    process = run_job(folder, job, modules=MODULES, environment=environment)
    assert (process.returncode, process.stderr) == (0, "")
    rows, took = json.loads(process.stdout)
    return rows, took


def test_each_log_has_the_seconds_of_its_steps_phases(tmp_path: Path) -> None:
    (*rows, summary), took = run(tmp_path, **ASKED)
    assert len(rows) == 3
    assert {row["loss"] for row in rows} == {0.5}
    sums = {name: sum(row[name] for row in rows) for name in rows[0] if "grpo_doctor" in name}
    reward_s, train_s, step_s = (sums[f"grpo_doctor/{n}_s"] for n in ("reward", "train", "step"))
    assert reward_s >= took["reward"] - _ROUNDED_S
    # The innermost span owns the time: the reward's is not also the training's. The first step
    # begins with its batches: the wait before them is in the steps after it.
    assert step_s >= reward_s + train_s + took["wait"] - _ROUNDED_S
    assert summary == {"train_runtime": 1.0}


def clock(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    readings = iter([int(second * 1e9) for second in seconds])
    monkeypatch.setattr("grpo_doctor_probes.hooks.sums.monotonic_ns", lambda: next(readings))


def test_several_steps_between_two_logs_are_a_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 0, 1, 3, 5, 6, 9)
    sums = PhaseSums(enabled=True)
    sums.begin_step()
    sums.charge([])
    sums.charge(["rollout", "rollout/generate"])
    sums.begin_step()
    assert sums.take([]) == {"grpo_doctor/rollout_s": 1.0, "grpo_doctor/step_s": 2.5}
    assert sums.take([]) == {}
    sums.begin_step()
    sums.charge(["callback/Journal.on_log"])
    # A phase that was there once stays: it took nothing this time.
    assert sums.take(["train"]) == {
        "grpo_doctor/rollout_s": 0.0,
        "grpo_doctor/train_s": 3.0,
        "grpo_doctor/step_s": 4.0,
    }


def in_another_thread(call: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def test_phases_of_other_threads_are_not_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 0, 4, 9)
    sums = PhaseSums(enabled=True)
    in_another_thread(lambda: sums.charge(["train"]))
    sums.begin_step()
    in_another_thread(lambda: sums.charge(["reward"]))
    assert in_another_thread(lambda: sums.take(["reward"])) == {}
    sums.charge(["train"])
    assert sums.take([]) == {"grpo_doctor/train_s": 4.0, "grpo_doctor/step_s": 9.0}


def test_another_training_begins_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 0, 2, 100, 101)
    sums = PhaseSums(enabled=True)
    sums.begin_step()
    sums.charge(["eval"])
    sums.restart()
    assert sums.take([]) == {}
    sums.begin_step()
    sums.on = False  # nothing is summed unless asked
    assert sums.take(["train"]) == {}
    sums.on = True
    assert sums.take([]) == {"grpo_doctor/step_s": 1.0}
