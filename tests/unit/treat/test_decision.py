"""What is tried next, what is kept, and the words for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from grpo_doctor.treat import decision
from grpo_doctor.treat.decision import MEASURED, judge
from grpo_doctor.treat.paired import MOST_PAIRS
from grpo_doctor_reports.schema.treat import ChangeEntry, Percent, TrialEntry


def change(index: int = 0, mid: float | None = None, **members: object) -> ChangeEntry:
    predicted = None if mid is None else Percent(low=mid - 5, mid=mid, high=mid + 5)
    entry = ChangeEntry(index=index, text=f"--x {index}", predicted=predicted)
    return replace(entry, **members)


def trial(side: str, state: str = MEASURED, why: str = "") -> TrialEntry:
    return TrialEntry(side=side, change=0, state=state, why=why)


@pytest.mark.parametrize(
    ("ratios", "state"),
    [
        ([], "more"),
        ([-0.5], "more"),
        ([-0.5, -0.51, -0.5], "more"),  # half a block: a drift would count
        ([-0.5, -0.51], "kept"),
        ([-0.5, -0.3], "more"),
        ([0.1, 0.1], "rolled back"),
        ([-0.01, -0.01], "rolled back"),  # a gain, but not above 2%
        ([-0.05, 0.1], "more"),
        ([-0.05, 0.1, 0.0, 0.0], "rolled back"),
        ([-0.5, 0.4] * (MOST_PAIRS // 2), "rolled back"),
    ],
)
def test_judge(ratios: list[float], state: str) -> None:
    assert judge(ratios).state == state


def test_before_after_after_before_and_a_failed_one_again() -> None:
    trials: list[TrialEntry] = []
    order = []
    for number in range(8):
        side = decision.next_side(trials, 0)
        order.append(side)
        trials.append(trial(side, "failed" if number == 1 else MEASURED))
    assert order == [
        "before", "after", "after", "after", "before", "before", "after", "after",
    ]  # fmt: skip


def test_a_crash_now_and_then_is_no_verdict_and_two_are() -> None:
    crash = trial("after", "failed", "exit code 1")
    assert decision.failures([crash, trial("after")], 0) is None
    judged = decision.failures([crash, trial("after"), crash], 0)
    assert judged is not None
    assert judged.why == "2 of 3 trials ended as failed: exit code 1"


def test_out_of_memory_is_a_result_at_once() -> None:
    judged = decision.failures([trial("after", decision.OUT_OF_MEMORY, "CUDA")], 0)
    assert judged is not None
    assert judged.state == "rolled back"


def test_failures_without_the_change_are_not_its_own() -> None:
    assert decision.failures([trial("before", "failed")] * 3, 0) is None


def test_the_best_is_by_gain_for_a_minute_and_what_is_not_predicted_comes_last() -> None:
    small, large = change(0, -10.0), change(1, -30.0)
    unknown = change(2, None, cost_pct=90.0)
    settled = change(3, -80.0, state="rolled back")
    best = decision.best([small, large, unknown, settled], start_s=60, steps_s=60)
    assert best is large
    assert decision.best([unknown, settled], 60, 60) is unknown
    assert decision.best([settled], 60, 60) is None


def test_as_predicted_is_within_the_interval() -> None:
    entry = change(0, -10.0)
    assert decision.as_predicted(entry, Percent(low=-15.0, mid=-14.0, high=-13.0))
    assert decision.as_predicted(entry, Percent(low=-17.0, mid=-16.0, high=-15.5)) is False
    assert decision.as_predicted(entry, Percent(low=-20.0, mid=-16.0, high=-12.0)) is None
    assert decision.as_predicted(change(0), Percent(mid=-14.0)) is None


def test_the_verdict_multiplies_what_was_kept() -> None:
    kept = [change(n, state="kept", measured=Percent(low=-60, mid=-50, high=-40)) for n in range(2)]
    said = decision.verdict([*kept, change(2, state="refused")], "step-time")
    assert said == "Kept --x 0 and --x 1: step time \N{MINUS SIGN}75%. Other changes: 1 refused."


def test_the_verdict_of_nothing() -> None:
    said = "Nothing kept: no change of the command proved a gain above 2%."
    assert decision.verdict([], "step-time") == said
