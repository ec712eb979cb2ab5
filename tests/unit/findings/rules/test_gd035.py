from __future__ import annotations

import pytest

from grpo_doctor.findings.rule import NotApplicable, Passed
from grpo_doctor.findings.rules import gd035_reward_on_one_rank as rule
from tests.build import TraceBuilder
from tests.unit.findings.patients import HEALTHY, run
from tests.unit.findings.recorded import found, inside, judged, number

NO_REWARD = {**HEALTHY, "reward": 0.01}


def sick() -> TraceBuilder:
    build = run(NO_REWARD, slow={2: {"reward": 2.0}})
    return inside(build, "reward/judge", lambda rank, _: 1.99 if rank == 2 else 0.0)


def well() -> TraceBuilder:
    return run({**HEALTHY, "reward": 2.0})


def test_the_rank_that_scores_for_all_is_named() -> None:
    finding = found(rule, sick())
    assert finding.ranks == (2,)
    assert finding.headline == "Rank 2 alone scores while the others wait"
    step_s = sum(NO_REWARD.values()) + 2.0 + 0.05
    assert finding.cost == pytest.approx(2.0 / step_s, rel=0.02)
    assert number(finding, "rank 2 in reward") == pytest.approx(2.03, rel=0.02)
    fix = finding.fixes[0]
    assert fix.predicted is not None
    # An even share of 2.04 s on four ranks is 0.51 s, so 1.5 s of each step go.
    assert fix.predicted.mid == pytest.approx(-100 * 1.5 / step_s, abs=1.0)


def test_a_rank_that_is_slow_at_what_all_do_is_told_apart() -> None:
    build = inside(
        run(NO_REWARD, slow={1: {"reward": 2.0}}),
        "reward/judge",
        lambda rank, _: 1.9 if rank == 1 else 0.005,
    )
    finding = found(rule, build)
    assert finding.headline == "Rank 1 is slow at scoring while the others wait"
    assert "py-spy dump" in finding.fixes[0].spelling
    assert finding.fixes[0].predicted is not None


def test_even_scoring_and_small_excess_pass() -> None:
    assert isinstance(judged(rule, well()), Passed)
    assert isinstance(judged(rule, run(NO_REWARD, slow={2: {"reward": 0.1}})), Passed)


def test_a_run_without_rewards_is_not_asked() -> None:
    phases = {name: s for name, s in HEALTHY.items() if name != "reward"}
    assert isinstance(judged(rule, run(phases)), NotApplicable)
