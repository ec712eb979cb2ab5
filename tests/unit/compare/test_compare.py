"""Two whole runs: what is said of them, and of those that can't be compared."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from grpo_doctor.cli.compare import regression_code
from grpo_doctor.compare import Comparison, compare
from grpo_doctor.trace.model import Trace
from tests.build import TraceBuilder
from tests.unit.findings.patients import healthy, offloaded, run


def compared(before: Trace, after: Trace) -> Comparison:
    """The comparison, after checking that it is valid JSON of the schema."""
    found = compare(before, after)
    text = json.dumps(found, allow_nan=False)
    msgspec.json.decode(text, type=Comparison)
    return found


def steps(count: int, seconds: float, **more: float) -> TraceBuilder:
    """One rank whose steps take so long, with a little spread."""
    build = TraceBuilder(ranks=1)
    now = 0.0
    for number in range(count):
        length = seconds * (1 + 0.02 * (number % 3 - 1))
        build.step(0, number, now, {"rollout": 0.6 * length, "train": 0.4 * length})
        now += length
    if "tokens" in more:
        times = [(n + 0.5) * seconds for n in range(count)]
        values = [more["tokens"]] * count
        build.series("rollout/tokens", "", times, values, scope="counter", rank=0)
    return build


def test_a_fix_is_measured_beside_its_prediction() -> None:
    found = compared(offloaded().build(), healthy())
    assert found["step_time"]["verdict"] == "faster"
    assert found["verdict"].startswith("The run after is 17 % faster per step")
    (fix,) = found["fixes"]
    assert fix["knobs"] == {"offload.optimizer": [True, False]}
    assert fix["findings"] == ["GD001"]
    assert fix["inside"] is True
    assert fix["measured_pct"] == pytest.approx(fix["predicted_mid_pct"], abs=0.5)
    (phase,) = [p for p in found["phases"] if p["verdict"] != "no difference"]
    assert (phase["phase"], phase["verdict"]) == ("offload", "faster")
    assert phase["change_s"] == pytest.approx(-2.02)
    assert {f["id"]: f["state"] for f in found["findings"]}["GD001"] == "gone"


def test_a_run_compared_with_itself_has_no_difference() -> None:
    found = compared(healthy(), healthy())
    assert found["step_time"]["verdict"] == "no difference"
    assert found["step_time"]["change_pct"] == 0
    assert (found["settings"], found["fixes"]) == ([], [])
    assert {f["state"] for f in found["findings"]} <= {"still"}


def test_longer_completions_are_told_from_slowness() -> None:
    found = compared(steps(12, 1.0, tokens=1000).build(), steps(12, 1.5, tokens=1500).build())
    assert found["step_time"]["verdict"] == "slower"
    assert found["per_token"]["verdict"] == "no difference"
    assert found["per_token"]["change_pct"] == pytest.approx(0, abs=1)
    assert any("50 % more tokens per step" in caution for caution in found["cautions"])


def test_few_steps_are_not_enough_evidence() -> None:
    found = compared(steps(2, 1.0).build(), steps(12, 0.5).build())
    assert found["step_time"]["verdict"] == "not enough evidence"
    assert "there are 2 and 12" in found["verdict"]
    assert regression_code(found, 5) == 8


def test_runs_without_steps_are_said_to_be_incomparable() -> None:
    found = compared(TraceBuilder(ranks=1).build(), steps(12, 1.0).build())
    assert not found["comparable"]
    assert "the run before has no steps" in found["verdict"]
    assert found["after"]["step_time_s"] == pytest.approx(1.0, rel=0.01)
    assert regression_code(found, 5) == 8


def test_other_ranks_and_batches_are_cautions() -> None:
    found = compared(
        run(ranks=2, knobs={"train.micro_batch": 4}).build(),
        run(ranks=4, knobs={"train.micro_batch": 8}).build(),
    )
    text = " ".join(found["cautions"])
    assert "number of ranks differs: 2 before, 4 after" in text
    assert "not the same work: train.micro_batch is 4 before, 8 after" in text


@pytest.mark.parametrize(
    ("seconds", "limit", "code"), [(1.2, 5.0, 7), (1.2, 30.0, 0), (0.8, 0.0, 0), (1.0, 0.0, 0)]
)
def test_a_regression_beyond_the_limit_has_its_code(
    seconds: float, limit: float, code: int
) -> None:
    found = compared(steps(12, 1.0).build(), steps(12, seconds).build())
    assert regression_code(found, limit) == code


def test_a_change_without_a_law_says_so() -> None:
    before = run(knobs={"run.collective_timeout_s": 100}).build()
    after = run(knobs={"run.collective_timeout_s": 200}).build()
    (fix,) = compared(before, after)["fixes"]
    assert fix["predicted_mid_pct"] is None
    assert fix["note"].startswith("not predicted: no law says")


def test_numbers_are_finite() -> None:
    before = steps(6, 1.0).metrics(0, reward=math.nan).metrics(1, reward=math.inf).build()
    compared(before, before)
