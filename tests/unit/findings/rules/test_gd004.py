from __future__ import annotations

import random
from typing import Any

import pytest

from grpo_doctor.findings import RunView
from grpo_doctor.findings.rules import gd004_straggler_rank
from grpo_doctor.trace.model import Kind
from grpo_doctor.whatif import AsOthers, Replay
from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import finding_in, mid, passed, run, value, with_knobs


def chained() -> TraceBuilder:
    """Rank 0 trains 2 s longer; rank 1 waits for it, and rank 2 then waits for rank 1."""
    build = TraceBuilder(ranks=3)
    for number in range(6):
        at = 10.0 * number
        for rank, train in ((0, 5.0), (1, 3.0), (2, 3.0)):
            build.span(rank, "train", at, at + train)
        build.collective(0, number, at + 5.0, at + 5.1, group="pair-a")
        build.collective(1, number, at + 3.0, at + 5.1, group="pair-a")
        build.collective(1, number, at + 5.2, at + 5.3, group="pair-b")
        build.collective(2, number, at + 3.0, at + 5.3, group="pair-b")
        for rank in range(3):
            build.collective(rank, number, at + 5.4, at + 5.5)
            build.step(rank, number, at, {}, end_s=at + 5.6)
    return build


def test_who_is_late_because_it_waited_is_not_blamed() -> None:
    finding = finding_in(chained(), "GD004")
    assert finding.ranks == (0,)
    assert finding.phases == ("train",)
    assert value(finding, "share of wait time caused by rank 0") >= 90
    assert "Rank 0 is slow in train" in finding.headline


def test_the_gain_is_of_the_root() -> None:
    (fix,) = finding_in(chained(), "GD004").fixes
    # The step goes from 5.6 to some 3.6 s; a replay that knows no pairs may miss their meeting.
    assert mid(fix) == pytest.approx(-100 * 2.0 / 5.6, abs=6)


def test_a_rank_that_the_server_answers_last_is_not_slow() -> None:
    build = run(slow={2: {"rollout": 2.0}}, knobs=with_knobs(vllm__mode="server"))
    assert "answers rank 2 last" in passed(build, "GD004")


def spread(always_late_s: float, steps: int = 12) -> TraceBuilder:
    """Eight ranks whose rollouts spread by 1.2 s; rank 7's take some seconds more, in every step.

    The collective behind the rollout returns at once, and each rank blocks in a later wait.
    """
    draw = random.Random(3)
    build = TraceBuilder(ranks=8)
    for number in range(steps):
        at = 20.0 * number
        rollouts = [5.0 + 1.2 * draw.random() for _ in range(8)]
        rollouts[7] += always_late_s
        last = at + max(rollouts)
        for rank, rollout in enumerate(rollouts):
            build.span(rank, "rollout", at, at + rollout)
            build.collective(rank, number, at + rollout, at + rollout + 0.001)
            args, waits = {"group": "world"}, (at + rollout + 0.01, last + 0.1)
            build.span(rank, "train", at + rollout, last + 3.0)
            build.row(
                Kind.COLLECTIVE_WAIT, rank, "wait", *waits, depth=2, value=float(number), args=args
            )
            build.step(rank, number, at, {}, end_s=last + 3.1)
    return build


def test_who_is_always_last_is_named_though_the_others_spread_too() -> None:
    finding = finding_in(spread(1.3), "GD004")
    assert finding.ranks == (7,)
    assert finding.phases == ("rollout", "train")
    assert value(finding, "steps in which rank 7 is late") >= 90
    assert 25 <= value(finding, "share of wait time caused by rank 7") < 80
    assert finding.next_steps[0].predicted is not None


def test_spread_alone_names_nobody() -> None:
    assert "in " in passed(spread(0.0), "GD004")


def test_a_few_steps_do_not_make_always() -> None:
    assert "ranks wait" in passed(spread(1.3, steps=5), "GD004")


def saving(
    train_s: tuple[float, float] = (3.0, 3.0), duty: str = "checkpoint", **run: Any
) -> TraceBuilder:
    """Rank 0 writes a checkpoint in every step, and the ranks meet after the next passes."""
    build = TraceBuilder(ranks=2, **run)
    meets = max(train_s[0] + 2.0, train_s[1])
    for number in range(12):
        at = 10.0 * number
        for rank, train in enumerate(train_s):
            begin = at if rank else at + 2.0
            build.span(rank, "train", begin, begin + train)
            build.collective(rank, number, begin + train, at + meets)
            build.step(rank, number, at, {}, end_s=at + 9.9)
        build.span(0, duty, at, at + 2.0)
    return build


def test_who_writes_the_checkpoints_is_not_late() -> None:
    assert "ranks wait 0.0% of the step" in passed(saving(), "GD004")


@pytest.mark.parametrize(
    ("framework", "mode", "blamed"),
    [
        ("openrlhf", None, False), ("trl", "server", False), ("ms-swift", "server", False),
        ("trl", "colocate", True), ("verl", None, True),
    ],
)  # fmt: skip
def test_who_alone_sends_the_weights_is_not_late(
    framework: str, mode: str | None, blamed: bool
) -> None:
    knobs = {"vllm.use": True, "vllm.mode": mode} if mode else {}
    build = saving(duty="sync", framework=framework, knobs=knobs)
    if blamed:
        assert finding_in(build, "GD004").ranks == (0,)
    else:
        assert "ranks wait 0.0% of the step" in passed(build, "GD004")


def test_who_writes_the_checkpoints_can_be_slow_besides() -> None:
    finding = finding_in(saving((6.0, 3.0)), "GD004")
    assert (finding.ranks, finding.phases) == ((0,), ("train",))
    assert value(finding, "time each other rank waits for rank 0, per step") == pytest.approx(3.0)
    assert value(finding, "share of wait time caused by rank 0") == pytest.approx(100)


def always_last() -> TraceBuilder:
    return spread(1.3)


@pytest.mark.parametrize(("steps", "enough"), [(6, True), (5, False)])
def test_six_steps_make_always(steps: int, enough: bool) -> None:
    if enough:
        assert finding_in(spread(1.3, steps=steps), "GD004").ranks == (7,)
    else:
        assert "ranks wait" in passed(spread(1.3, steps=steps), "GD004")


def test_the_straggler_is_named_with_its_own_host() -> None:
    hosts = ["host-a", "host-b", "host-c", "host-d"]
    build = run(slow={2: {"rollout": 2.0}}, hosts=hosts, memory_gib=None)
    finding = finding_in(build, "GD004")
    assert "Rank 2 (host host-c) causes" in finding.cause
    assert finding.fixes[0].spelling.startswith("look at rank 2 on host-c next to another rank")


def test_what_would_change_are_the_phases_in_which_it_is_slower() -> None:
    change = gd004_straggler_rank.change_of(RunView.of(chained().build()))
    assert isinstance(change, Replay)
    assert change.edits == (AsOthers(("train",), 0),)


def test_a_rank_that_is_slow_in_everything_has_no_phase_to_name() -> None:
    slow = dict.fromkeys(("dataload", "rollout", "reward", "logprob", "train"), 0.5)
    finding = finding_in(run(slow={2: slow}), "GD004")
    assert finding.phases == ("train",)  # where the others wait for it
    assert finding.headline == "Rank 2 is the straggler"
    assert finding.cause.endswith("its phases do not show why.")
    assert finding.fixes[0].predicted is None
    assert "which phase of this rank is slower is unknown" in finding.fixes[0].risk
