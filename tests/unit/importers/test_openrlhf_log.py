"""OpenRLHF's console logs, of its synchronous and its asynchronous trainer."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Trace

COMMAND = "+ python3 -m openrlhf.cli.train_ppo_ray --rollout.n_samples_per_prompt 8"
TIMES = {"make_experience": 2.0, "ppo_train": 6.0, "broadcast": 0.5, "generation": 11.5}


def step_line(number: int, total: float | None = 20.0, module: str = "ppo_trainer") -> str:
    times = {f"timing/{name}": seconds for name, seconds in TIMES.items()}
    metrics = {"policy_loss": -0.25, "reward": "np.float64(0.5)", "kl": "nan", **times}
    if total is None:
        metrics = {key: value for key, value in metrics.items() if not key.startswith("timing")}
    else:
        metrics["timing/step_total"] = total
    problem = ", ".join(f"'{key}': {value}" for key, value in metrics.items())
    return (
        f"\x1b[36m(PPOTrainer pid=28)\x1b[0m INFO 11-23 04:20:32 {module}.py:551] "
        f"Global step {number}: {{{problem}}}"
    )


def loaded(folder: Path, *lines: str, end: str = "\n") -> Trace:
    path = folder / "train.log"
    path.write_text("\n".join(lines) + end)
    return load(path)


def test_shares_are_those_of_the_log(tmp_path: Path) -> None:
    trace = loaded(tmp_path, COMMAND, *(step_line(n) for n in range(1, 7)))
    analysis = analyse(trace)
    for phase, seconds in {"rollout": 11.5, "logprob": 2, "train": 6, "sync": 0.5}.items():
        assert analysis.share(phase) == pytest.approx(seconds / 20, abs=1e-9), phase
    assert trace.metrics.values["reward"].tolist() == [0.5] * 6
    assert trace.run.knobs["rollout.num_generations"] == 8


def test_beside_training_the_rollout_is_what_the_trainer_waits(tmp_path: Path) -> None:
    line = step_line(1, total=12.0, module="ppo_trainer_async")
    trace = loaded(tmp_path, line)
    assert analyse(trace).share("rollout") == pytest.approx(3.5 / 12)
    assert any("during the steps" in note for note in trace.run.notes)


def test_before_0_10_there_are_metrics_only(tmp_path: Path) -> None:
    trace = loaded(tmp_path, step_line(1, total=None), step_line(2, total=None))
    assert len(analyse(trace).steps.numbers) == 0
    assert trace.metrics.steps.tolist() == [1, 2]
    assert any("since 0.10" in note for note in trace.run.notes)


def test_a_line_that_is_cut_off_loses_what_was_cut(tmp_path: Path) -> None:
    line = step_line(2)
    trace = loaded(tmp_path, step_line(1), line[: line.index("'timing/generation'") + 22], end="")
    assert trace.loss.truncated
    assert analyse(trace).steps.numbers.tolist() == [1]
    assert "timing/generation" in trace.metrics.absent


SYNC_LIMIT = "Time outside OpenRLHF's timers"


@pytest.mark.parametrize(
    ("total", "module", "limited", "phases"),
    [
        (20.0, "ppo_trainer", True, ("logprob", "rollout", "sync", "train")),
        (12.0, "ppo_trainer_async", False, ("logprob", "rollout", "sync", "train")),
        (None, "ppo_trainer", False, ()),
        (None, "ppo_trainer_async", False, ()),
    ],
)
def test_what_a_log_can_not_tell_is_said_of_the_trainer_that_wrote_it(
    total: float | None, module: str, limited: bool, phases: tuple[str, ...], tmp_path: Path
) -> None:
    origin = loaded(tmp_path, step_line(1, total=total, module=module)).run.origin
    assert origin is not None
    assert any(SYNC_LIMIT in limit for limit in origin.limits) is limited
    assert origin.phases == phases


def test_beside_training_steps_without_a_total_have_no_length(tmp_path: Path) -> None:
    trace = loaded(
        tmp_path, step_line(1, total=None, module="ppo_trainer_async"),
        step_line(2, total=12.0, module="ppo_trainer_async"),
    )  # fmt: skip
    assert analyse(trace).steps.numbers.tolist() == [2]


def test_the_first_engine_and_the_first_command_are_told(tmp_path: Path) -> None:
    trace = loaded(
        tmp_path, "Initializing a V1 LLM engine (v0.11.0) with", COMMAND,
        "Initializing a V1 LLM engine (v0.12.0) with", COMMAND.replace(" 8", " 9"), step_line(1),
    )  # fmt: skip
    assert trace.run.versions == {"vllm": "0.11.0"}
    assert trace.run.knobs["rollout.num_generations"] == 8
    assert loaded(tmp_path, step_line(1)).run.versions == {}
