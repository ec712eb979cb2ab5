"""One arithmetic: on every run that tests can build, what a page says adds up."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import pytest

from grpo_doctor.document import build_document
from grpo_doctor.trace.model import Trace
from grpo_doctor_reports import digest, time_words
from grpo_doctor_reports.digest import key_numbers, step_bar
from grpo_doctor_reports.schema.findings import FindingEntry
from grpo_doctor_reports.schema.report import PhaseEntry, ReportDocument, read_report
from tests.build import TraceBuilder
from tests.first_screens import runs as first_screens
from tests.large_runs import large_run
from tests.unit.document.said import RUNS as SAID
from tests.unit.findings.registry import EXAMPLES

SCREENS = ("healthy", "slow_reward", "always_last", "offload", "starved", "without_vllm",
           "flat_reward", "out_of_memory", "hung")  # fmt: skip
RUNS: dict[str, Callable[[], Trace]] = {
    **SAID,
    **{f"{rule} sick": lambda sick=sick: sick().build() for rule, (sick, _) in EXAMPLES.items()},  # type: ignore[misc]
    **{f"{rule} well": lambda well=well: well().build() for rule, (_, well) in EXAMPLES.items()},  # type: ignore[misc]
    **{f"screen {name}": getattr(first_screens, name) for name in SCREENS},
    "64 ranks": lambda: large_run(64, 60),
}
# Numbers of the document are rounded to the microsecond, shares to five digits.
ROUNDING = 2e-5


@cache
def document(name: str) -> ReportDocument:
    return build_document(RUNS[name]())


@cache
def report(name: str) -> ReportDocument:
    return read_report(document(name))


@pytest.fixture(params=RUNS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_step_is_in_the_means_or_named_with_the_reason(name: str) -> None:
    summary = document(name).summary
    left_out = [number for numbers in summary.left_out.values() for number in numbers]
    assert summary.steps + len(left_out) == summary.steps_total
    assert not set(left_out) & set(summary.set_apart["checkpoint"] + summary.set_apart["eval"])
    notes = dict(time_words.time_notes(report(name)))
    assert ("Excluded" in notes) == bool(left_out)


def test_phases_add_up_to_the_step_and_kinds_to_the_phase(name: str) -> None:
    summary = document(name).summary
    if not summary.step_time_s:
        return
    phases = summary.phases.values()
    rest = summary.unattributed or PhaseEntry()
    seconds = sum(phase.seconds for phase in phases) + rest.seconds
    assert seconds == pytest.approx(summary.step_time_s, abs=ROUNDING)
    shares = sum(phase.share or 0 for phase in phases) + (rest.share or 0)
    assert shares == pytest.approx(1, abs=2e-4)
    assert sum(summary.accounting.values()) <= 1 + 1e-4
    for phase in phases:
        kinds = (phase.work_seconds, phase.wait_seconds, phase.transfer_seconds, phase.idle_seconds)
        assert sum(kinds) == pytest.approx(phase.seconds, abs=ROUNDING)
        assert min(kinds) >= -ROUNDING


def test_a_mean_outside_of_p10_to_p90_has_a_word_beside_it(name: str) -> None:
    summary, shown = document(name).summary, report(name)
    low, mean, high = summary.step_time_p10_s, summary.step_time_s, summary.step_time_p90_s
    if low is not None and mean is not None and high is not None and not low <= mean <= high:
        spread = next(item for item in key_numbers(shown) if item.label == "Step time").detail
        assert f"step {summary.longest_step.number} took" in spread
    for bar in step_bar(shown):
        if bar.p10_s is not None and bar.p90_s is not None:
            within = bar.p10_s <= bar.seconds <= bar.p90_s
            assert within or time_words.seldom_words(bar, summary.steps)


def test_no_finding_costs_more_than_its_phases(name: str) -> None:
    summary = document(name).summary
    shares = {phase: entry.share or 0.0 for phase, entry in summary.phases.items()}
    shares["unattributed"] = (summary.unattributed or PhaseEntry()).share or 0.0
    for finding in document(name).findings:
        cost = finding.cost.share or 0.0
        assert cost <= 1 + ROUNDING
        assert (finding.cost.seconds_per_step or 0) == pytest.approx(
            cost * (summary.step_time_s or 0), abs=1e-4 * (summary.step_time_s or 1)
        )
        if finding.phases:
            blamed = sum(shares.get(phase, 0.0) for phase in finding.phases)
            assert cost <= blamed + 1e-3, (finding.id, finding.title)


def test_no_fix_gains_more_than_the_cost_and_the_waits_for_it(name: str) -> None:
    """A step is work and wait: without some work there is less of both."""
    waits = document(name).summary.accounting.get("wait", 0.0)
    for finding in report(name).findings:
        cost = finding.cost.share or 0.0
        predicted = _predicted(finding)
        if cost and predicted is not None:
            assert -predicted <= 100 * (cost + waits) + 0.2, (finding.id, finding.title)


def test_headline_first_card_and_what_if_name_the_same_fix(name: str) -> None:
    shown, whatif = report(name), document(name).whatif
    if not shown.findings or all(finding.severity == "info" for finding in shown.findings):
        assert whatif.chosen == []
        return
    first = shown.findings[0]
    remedy = digest.main_fix(first) or digest.main_step(first)
    predicted = _predicted(first)
    if predicted is None or not whatif.fixes:
        assert whatif.chosen == []
    else:
        (index,) = whatif.chosen
        fix = whatif.fixes[index]
        assert fix.finding == first.id
        assert fix.mid == pytest.approx(predicted, abs=0.051)
        assert fix.spelling == ("" if fix.next_step else getattr(remedy, "spelling", ""))
        if document(name).run.exit.state == "finished" and -predicted >= 1:
            assert digest.gain_sentence(remedy.predicted if remedy else None).split()[2] in (
                document(name).summary.verdict
            )


def test_fixes_of_several_grave_findings_have_a_sum_no_smaller_than_the_best(name: str) -> None:
    whatif = document(name).whatif
    mids = {tuple(joint.fixes): joint.mid or 0.0 for joint in whatif.sets}
    chosen = tuple(whatif.together)
    if chosen:
        assert mids[chosen] <= min(mids[index,] for index in chosen) + 0.1
        assert mids[chosen] >= sum(mids[index,] for index in chosen) - 0.1 or math.isclose(
            mids[chosen], -100, abs_tol=0.1
        )


def _predicted(finding: FindingEntry) -> float | None:
    remedy = digest.main_fix(finding) or digest.main_step(finding)
    return remedy.predicted.mid if remedy is not None and remedy.predicted is not None else None


def test_phases_follow_each_other_as_most_of_their_time_does() -> None:
    build = TraceBuilder(ranks=1)
    for number in range(6):  # TRL: what is generated in one step is trained on in two
        start_s = 10.0 * number
        build.step(0, number, start_s, {"train": 8.0, "optimizer": 1.0})
        if number % 2 == 0:
            build.span(0, "rollout", start_s + 0.1, start_s + 6.0, depth=2)
            build.span(0, "reward", start_s + 5.0, start_s + 6.0, depth=3)
    phases = build_document(build.build()).summary.phases
    in_order = sorted(phases, key=lambda name: phases[name].start_s)
    assert in_order == ["rollout", "reward", "train", "optimizer"]
