"""The table of confidence: shares of right verdicts, never more sure for worse evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.decision.confidence import Features, looked_up
from tests.corpus.fit import Settings, brier, first_sight, fit, predicted
from tests.corpus.page import expected_error
from tests.corpus.verdicts import WHOLE, Case

SETTINGS = Settings(lean=4.0, penalty=2.0)
PLAIN = Features(
    sink="line", liveness="timed", cause="reward-blocked",
    recordings="silent", ras="silent", gpus="silent",
    stacks=True, victims=True, waited=2, several=False, unseen_hosts=False,
)  # fmt: skip


def cases(features: Features, right: int, of: int, visibility: str = WHOLE) -> list[Case]:
    """So many right verdicts of so many, in ten families."""
    return [Case(f"{n}", f"family {n % 10}", visibility, features, n < right) for n in range(of)]


def test_a_kind_with_many_cases_is_believed_and_a_new_one_leans_on_the_rest() -> None:
    table = fit(cases(PLAIN, 60, 100), SETTINGS)
    assert looked_up(table, PLAIN) == pytest.approx(0.6, abs=0.02)
    elsewhere = replace(PLAIN, sink="process", liveness="stopped")
    assert looked_up(table, elsewhere) == pytest.approx(0.6, abs=0.05)


def test_without_any_case_it_is_what_was_right_at_first_sight() -> None:
    cell = first_sight()
    assert (cell.cases, cell.right) == (212, 178)
    table = fit(cases(PLAIN, 0, 1), Settings(lean=1e9, penalty=2.0))
    assert looked_up(table, PLAIN) == pytest.approx(cell.probability, abs=1e-3)


@pytest.mark.parametrize(
    "worse",
    [
        replace(PLAIN, recordings="disagrees"), replace(PLAIN, ras="disagrees"),
        replace(PLAIN, gpus="disagrees"),
        replace(PLAIN, stacks=False), replace(PLAIN, victims=False),
        replace(PLAIN, unseen_hosts=True), replace(PLAIN, several=True),
    ],
)  # fmt: skip
def test_evidence_against_a_verdict_never_speaks_for_it(worse: Features) -> None:
    lucky = cases(PLAIN, 50, 100) + cases(worse, 100, 100, "seen worse")
    table = fit(lucky, SETTINGS)
    assert looked_up(table, worse) <= looked_up(table, PLAIN)
    unlucky = cases(PLAIN, 95, 100) + cases(worse, 20, 100, "seen worse")
    assert looked_up(fit(unlucky, SETTINGS), worse) < 0.35


def test_recordings_that_agree_never_speak_against_a_verdict() -> None:
    agreed = replace(PLAIN, recordings="agrees")
    table = fit(cases(PLAIN, 95, 100) + cases(agreed, 50, 100), SETTINGS)
    assert looked_up(table, agreed) >= looked_up(table, PLAIN)


def test_a_family_is_judged_by_a_table_that_has_not_seen_it() -> None:
    easy, hard = cases(PLAIN, 90, 90), [Case("x", "hard", WHOLE, PLAIN, False)] * 10
    sure = {case.group: share for case, share in predicted([*easy, *hard], SETTINGS)}
    assert sure["hard"] > 0.95
    assert sure["family 1"] < 0.95


def test_calibration_is_measured_by_bins() -> None:
    predictions = [(case, 0.75) for case in cases(PLAIN, 3, 4)]
    assert expected_error(predictions) == pytest.approx(0.0)
    assert expected_error([(case, 0.95) for case, _ in predictions]) == pytest.approx(0.2)
    assert brier(predictions) == pytest.approx(0.1875)
