from __future__ import annotations

from pathlib import Path

from tests.labelled.bench import judge_kept
from tests.labelled.case import Case, flags_of
from tests.labelled.judge import Outcome, score

HEALTHY = Case("healthy: defaults")


def test_on_a_busy_machine_it_is_true_that_ranks_wait_for_processors() -> None:
    severities = {"GD004": "high", "GD023": "medium", "GD033": "low"}
    calm, busy = Outcome(HEALTHY, severities, 1.0), Outcome(HEALTHY, severities, 1.0, busy=True)
    assert calm.wrong == {"GD004", "GD023", "GD033"}
    assert busy.wrong == {"GD033"}
    assert calm.alarms == {"GD004"}
    assert not busy.alarms
    assert (score([calm, busy]).busy, score([calm, busy]).healthy_alarms) == (1, 1)


def test_a_seed_of_its_own_gives_way_to_that_of_the_case() -> None:
    assert flags_of(HEALTHY, "m", 101)[-2:] == ["--seed", "101"]
    assert flags_of(Case("", ("--seed", "7")), "m", 101)[-1] == "7"


def test_a_run_that_was_not_kept_is_not_judged(tmp_path: Path) -> None:
    (row,) = judge_kept([HEALTHY], tmp_path, lambda _: None)
    assert row.failed == "not kept"
