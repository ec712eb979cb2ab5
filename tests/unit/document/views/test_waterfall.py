"""The mean step as phases one after the other."""

from __future__ import annotations

from grpo_doctor.analysis import analyse
from grpo_doctor.document.summary import summary
from grpo_doctor.findings import RunView, run_rules
from grpo_doctor_reports.charts import bars_of
from grpo_doctor_reports.schema.report import SCHEMA, ReportDocument
from tests.build import TraceBuilder


def drawn(build: TraceBuilder) -> list[tuple[str, float, float]]:
    analysis = analyse(build.build())
    entire = summary(analysis, run_rules(RunView(analysis)), [])
    bars = bars_of(ReportDocument(schema=SCHEMA, summary=entire))
    return [(bar.phase, bar.start_s, bar.seconds) for bar in bars]


def test_phases_follow_each_other_as_they_start_and_the_rest_comes_last() -> None:
    build = TraceBuilder()
    for number in range(4):
        phases = {"sync": 1.0, "rollout": 2.0, "train": 4.0}
        build.step(0, number, 50.0 + 10 * number, phases, end_s=58.0 + 10 * number)
    assert drawn(build) == [
        ("sync", 0.0, 1.0), ("rollout", 1.0, 2.0), ("train", 3.0, 4.0), ("unattributed", 7.0, 1.0),
    ]  # fmt: skip


def test_a_phase_begins_where_it_first_does_in_a_step_in_the_mean_of_ranks() -> None:
    build = TraceBuilder(ranks=2)
    for number in range(4):
        at = 10.0 * number
        # Rank 0 saves first and again at the end; rank 1 rolls out first.
        build.span(0, "checkpoint", at, at + 1).span(0, "rollout", at + 1, at + 3)
        build.span(0, "checkpoint", at + 7, at + 8).step(0, number, at, {}, end_s=at + 8)
        build.span(1, "rollout", at + 4, at + 6).span(1, "checkpoint", at + 6, at + 8)
        build.step(1, number, at, {}, end_s=at + 8)
    # Rollouts begin after (1 + 4) / 2 s, checkpoints after (0 + 6) / 2.
    assert [phase for phase, *_ in drawn(build)] == ["rollout", "checkpoint", "unattributed"]


def test_what_takes_no_time_is_left_out() -> None:
    build = TraceBuilder()
    for number in range(4):
        build.step(0, number, 10.0 * number, {"train": 4.0, "sync": 0.0})
    assert drawn(build) == [("train", 0.0, 4.0)]
    assert drawn(TraceBuilder()) == []
