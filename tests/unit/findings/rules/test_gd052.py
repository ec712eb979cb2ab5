from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import SETTINGS, run
from tests.unit.findings.learners import alike, learner
from tests.unit.findings.rules.saying import finding_in, missing, passed, value

FLAT = {"reward": lambda t, v, r: 0.5 + alike(len(t), 0.05, r)}


def sick() -> TraceBuilder:
    """Gone at the middle of the run."""
    fall = {"entropy": lambda t, v, r: np.maximum(0.01, 0.6 * (1 - 2 * t)) + 0.002 * r.random(80)}
    return learner({**FLAT, **fall})


def well() -> TraceBuilder:
    return learner()


def test_the_step_of_its_arrival_is_said() -> None:
    finding = finding_in(sick(), "GD052")
    assert finding.severity == "high"
    assert value(finding, "below a tenth of its initial value from step") == pytest.approx(
        37, abs=3
    )
    assert "collapses at step" in finding.headline
    assert finding.steps[0] == value(finding, "from step")
    assert finding.steps[-1] == 80


@pytest.mark.parametrize(
    ("law", "curve", "arrives"),
    [
        # The floor is a tenth of 0.6.
        ("linear", lambda t: 0.6 * (1 - 0.7 * t), 80 * 0.9 / 0.7),
        ("exponential", lambda t: 0.6 * np.exp(-1.6 * t), 80 * np.log(10) / 1.6),
    ],
)
def test_a_fall_that_goes_on_is_projected(law: str, curve: object, arrives: float) -> None:
    change = {"entropy": lambda t, v, r: curve(t) + r.normal(0, 0.004, len(t))}  # type: ignore[operator]
    finding = finding_in(learner({**FLAT, **change}), "GD052")
    assert finding.severity == "medium"
    assert value(finding, f"{law} fall") == pytest.approx(arrives, rel=0.08)
    assert "will collapse by step" in finding.headline


def test_a_task_that_is_being_learned_may_lose_entropy() -> None:
    fall = {"entropy": lambda t, v, r: 0.6 * np.exp(-5 * t)}
    assert finding_in(learner(fall), "GD052").severity == "medium"
    steady = {"reward": lambda t, v, r: t + r.normal(0, 0.05, len(t))}
    assert finding_in(learner({**fall, **steady}), "GD052").severity == "low"


def test_a_fall_that_levels_off_is_healthy() -> None:
    fall = {"entropy": lambda t, v, r: 0.2 + 0.4 * np.exp(-8 * t) + r.normal(0, 0.01, len(t))}
    passed(learner({**FLAT, **fall}), "GD052")


def test_a_collapse_within_the_first_steps_is_seen() -> None:
    finding = finding_in(learner({**FLAT, "entropy": lambda t, v, r: 5 * np.exp(-80 * t)}), "GD052")
    assert value(finding, "initial entropy") == 5
    assert value(finding, "from step") <= 6


def test_short_runs_and_hardly_any_entropy() -> None:
    assert "20 steps" in missing(learner(steps=12), "GD052")
    assert "too low" in passed(learner({"entropy": 0.01}), "GD052")


def test_clipping_and_rate_are_advised_with_values() -> None:
    build = learner(
        {**FLAT, "entropy": lambda t, v, r: 0.6 * np.exp(-6 * t)},
        knobs={"train.learning_rate": 1e-5, "train.beta": 0.0, "train.epsilon": 0.2},
    )
    high, rate, beta = finding_in(build, "GD052").fixes
    assert (high.knob, high.after) == ("train.epsilon_high", 0.28)
    assert (rate.knob, rate.after) == ("train.learning_rate", 2e-6)
    assert (beta.knob, beta.after) == ("train.beta", 0.04)


@pytest.mark.parametrize(("comes_back_to", "collapsed"), [(0.09, True), (0.3, False)])
def test_what_crawls_back_a_little_has_not_recovered(comes_back_to: float, collapsed: bool) -> None:
    curve = {
        "entropy": lambda t, v, r: np.interp(t, [0, 0.3, 0.6, 1], [0.6, 0.03, 0.03, comes_back_to])
    }
    build = learner({**FLAT, **curve})
    if not collapsed:
        passed(build, "GD052")
        return
    finding = finding_in(build, "GD052")
    assert value(finding, "below a tenth of its initial value from step") == pytest.approx(
        23, abs=3
    )
    assert "without coming back to a fifth" in finding.cause


def test_a_fall_to_where_it_has_been_before_foretells_nothing() -> None:
    curve = {"entropy": lambda t, v, r: np.interp(t, [0, 0.2, 0.5, 1], [0.6, 0.2, 0.5, 0.25])}
    passed(learner({**FLAT, **curve}), "GD052")


def of_steps(values: Sequence[float], begin: int = 1) -> TraceBuilder:
    """A run that says this entropy, and a reward that does not rise."""
    build = run(knobs=SETTINGS)
    for i, value_ in enumerate(values):
        build.metrics(begin + i, entropy=float(value_), reward=0.5 + 0.1 * (i % 2))
    return build


@pytest.mark.parametrize(
    ("low", "fallen"),
    [(0.5, 11), (0.51, None)],  # of five nats a tenth
)
def test_a_tenth_of_the_start_is_a_collapse_from_its_first_step_on(
    low: float, fallen: int | None
) -> None:
    build = of_steps([5.0] * 9 + [low] * 31)
    if fallen is None:
        assert passed(build, "GD052") == "entropy goes from 5 to 0.51 nats"
    else:
        finding = finding_in(build, "GD052")
        assert value(finding, "below a tenth of its initial value from step") == fallen
        assert f"has stayed below a tenth of its initial value since step {fallen}" in finding.cause


@pytest.mark.parametrize(("back_to", "recovered"), [(1.0, False), (1.25, True)])
def test_a_fifth_of_the_start_is_no_recovery(back_to: float, recovered: bool) -> None:
    build = of_steps([5.0] * 9 + [0.25] * 10 + [back_to] * 21)
    if recovered:
        assert "entropy goes from 5 to 1.25 nats" in passed(build, "GD052")
    else:
        assert "without coming back to a fifth" in finding_in(build, "GD052").cause


def line(count: int, end: float) -> list[float]:
    return [float(value_) for value_ in np.linspace(1.0, end, count)]


@pytest.mark.parametrize(
    ("values", "foretold"),
    [
        (line(40, 0.3), True),
        (line(39, 0.3), False),  # too few for a law
        ([1.0] * 20 + line(20, 0.62), True),
        ([1.0] * 20 + line(20, 0.69), False),  # a third is not gone yet
        (line(60, 0.56), False),  # it would arrive later than after another such run
        ([1.0] * 20 + [0.3 + 0.002 * i for i in range(20)], False),  # it rises since
        ([1.0] * 20 + [0.3 + 0.2 * (i % 2) - 0.002 * i for i in range(20)], False),
        ([*line(40, 0.3)[:20], 9.0, *line(40, 0.3)[21:]], False),
        ([*line(40, 0.3)[:19], 9.0, *line(40, 0.3)[20:]], True),  # not in the half that counts
    ],
)
def test_a_fall_is_foretold_by_a_law_of_the_later_half(values: list[float], foretold: bool) -> None:
    for begin in (1, 1001):
        build = of_steps(values, begin)
        if foretold:
            finding = finding_in(build, "GD052")
            assert "will collapse by step" in finding.headline
            assert value(finding, "reaches it at step") > begin + len(values)
        else:
            assert "entropy goes from 1 to" in passed(build, "GD052")
