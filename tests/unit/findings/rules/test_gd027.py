from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import finding_in, not_applicable, passed, value

STEPS = 6


def sick() -> TraceBuilder:
    return overlapping(4.0)


def well() -> TraceBuilder:
    return overlapping(0.5)


def overlapping(
    wait_s: float, *, generate_s: float = 8.0, reward_s: float = 1.0, loop: bool = True
) -> TraceBuilder:
    """Two ranks with steps of ten seconds, and a rollout loop in a process of its own."""
    build = TraceBuilder(ranks=3, framework="trl", framework_version="1.16.0")
    build.roles[2] = "rollout"
    for number in range(STEPS):
        at = 10.0 * number
        for rank in (0, 1):
            build.step(rank, number, at, {"rollout/wait": wait_s, "train": 10.0 - wait_s})
        if loop:
            build.span(2, "rollout/generate", at, at + generate_s)
            build.span(2, "reward", at + 1, at + 1 + reward_s)
    return build


def test_the_ranks_wait_for_samples() -> None:
    finding = finding_in(overlapping(4.0), "GD027")
    assert value(finding, "waiting for samples, per step") == pytest.approx(4.0)
    assert value(finding, "of the step") == pytest.approx(40.0)
    assert value(finding, "rollout loop in rollout/generate") == pytest.approx(80.0)
    assert value(finding, "rollout loop in reward") == pytest.approx(10.0)
    assert "1.7 times as fast" in finding.cause
    assert finding.fixes[0].spelling.startswith("move GPUs from training")


def test_a_reward_that_takes_more_than_generating_is_what_to_mend() -> None:
    finding = finding_in(overlapping(4.0, generate_s=2.0, reward_s=7.0), "GD027")
    assert finding.fixes[0].spelling.startswith("make the reward faster")


def test_a_reward_at_work_all_the_time_is_what_samples_wait_for_while_others_are_generated() -> (
    None
):
    build = overlapping(4.0, generate_s=10.0, reward_s=9.0)
    for number in range(STEPS):
        build.span(2, "reward/judge", 10.0 * number + 1, 10.0 * number + 9)
        build.span(2, "reward/queue", 10.0 * number, 10.0 * number + 5)
        build.span(2, "rollout/queue", 10.0 * number, 10.0 * number + 1)
    finding = finding_in(build, "GD027")
    text = "make the reward (most of it judge) faster, or score more samples at once: it runs"
    assert finding.fixes[0].spelling.startswith(text)
    assert value(finding, "generation waits for the reward") == pytest.approx(40.0)


@pytest.mark.parametrize(("tools_s", "gets"), [(6.0, "make the tools"), (4.0, "move GPUs")])
def test_tools_against_the_engine_by_what_trajectories_spend(tools_s: float, gets: str) -> None:
    """Of trajectories side by side some generate and some call tools, at any time."""
    build = overlapping(4.0, generate_s=10.0)
    for number in range(STEPS):
        at = 10.0 * number
        build.span(2, "rollout/tools", at, at + 10.0)
        build.span(2, "rollout/tools/search", at, at + 9.0)
        build.span(2, "rollout/tools/look_up", at, at + 1.0)
        build.metrics(number, **{
            "tools/latency_s": tools_s / 4, "tools/parallel_calls_mean": 2.0,
            "rollout/turns_mean": 3.0, "rollout/duration_s": 10.0,
        })  # fmt: skip
    finding = finding_in(build, "GD027")
    assert value(finding, "a trajectory's time in tools") == pytest.approx(10 * tools_s, rel=0.01)
    assert finding.fixes[0].spelling.startswith(gets)
    assert gets == "move GPUs" or "(most of it search)" in finding.fixes[0].spelling


def test_the_pause_for_new_weights_is_the_rollouts() -> None:
    build = overlapping(4.0)
    for number in range(STEPS):
        build.span(0, "sync", 10.0 * number + 8, 10.0 * number + 10)
        build.span(0, "sync/pause", 10.0 * number + 8, 10.0 * number + 8.1)
    assert value(finding_in(build, "GD027"), "rollout paused for new weights") == pytest.approx(
        20.0
    )


def test_what_was_dropped_of_what_came_to_the_trainer() -> None:
    """What still lies in the queue was not generated for nothing."""
    build = overlapping(0.5)
    for number in range(STEPS):
        build.metrics(number, **{
            "rollout/generated_tok_s": 1000.0, "perf/trained_tok_s_wall_clock": 400.0,
            "batch/samples_per_step": 8.0, "sample/dropped_stale_total": 2.0,
        })  # fmt: skip
    finding = finding_in(build, "GD027")
    assert value(finding, "generated but never trained on") == pytest.approx(20.0)


def test_without_a_recording_of_the_loop_the_wait_alone_is_told() -> None:
    finding = finding_in(overlapping(9.0, loop=False), "GD027")
    assert [e.text for e in finding.evidence] == ["waiting for samples, per step", "of the step"]
    assert finding.severity == "high"


def test_ranks_that_hardly_wait_pass() -> None:
    assert "wait 9.0% of the step for samples" in passed(overlapping(0.9), "GD027")


def test_a_wait_of_a_tenth_is_a_finding() -> None:
    assert finding_in(overlapping(1.0), "GD027").cost == pytest.approx(0.1)


def test_phases_one_after_the_other_are_another_matter() -> None:
    build = TraceBuilder()
    for number in range(STEPS):
        build.step(0, number, 10.0 * number, {"rollout": 5.0, "train": 5.0})
    assert "neither `rollout/wait` nor" in not_applicable(build, "GD027")


def ahead(queue_s: float, *, ranks: int = 2, **knobs: int) -> TraceBuilder:
    """The ranks never wait; the loop waits for room in the queue."""
    settings = {name.replace("__", "."): value for name, value in knobs.items()}
    build = TraceBuilder(ranks=ranks + 1, framework="openrlhf", knobs=settings)
    build.roles[ranks] = "rollout-loop"
    for number in range(STEPS):
        at = 10.0 * number
        for rank in range(ranks):
            build.step(rank, number, at, {"rollout/wait": 0.1, "train": 9.9})
        build.span(ranks, "rollout/queue", at, at + queue_s)
    return build


def test_a_rollout_without_room_is_the_other_side() -> None:
    finding = finding_in(ahead(6.0), "GD027")
    assert "training is the slower side" in finding.cause
    assert "waits 60% of the time for room" in finding.cause
    assert value(finding, "rollout waits for room in the queue") == pytest.approx(60.0)
    assert finding.cost == pytest.approx(0.3)  # as if both sides had the same number of GPUs
    assert finding.fixes[0].spelling.startswith(
        "move GPUs from the rollout engine to training, one"
    )


def test_how_many_gpus_to_move_is_said_where_both_numbers_are_known() -> None:
    """8 train for 9.9 of 10 s, 8 generate for 4 of 10: 11.4 and 4.6 take the same time."""
    finding = finding_in(
        ahead(6.0, ranks=8, vllm__tensor_parallel_size=4, vllm__data_parallel_size=2), "GD027"
    )
    text = "move about 3 of the 8 GPUs of the rollout engine to training"
    assert finding.fixes[0].spelling == text
    starved = overlapping(5.0)
    starved.knobs = {"vllm.tensor_parallel_size": 1}
    # 2 train for half of the step, 1 generates all of it: 1.5 each.
    assert "one at a time" in finding_in(starved, "GD027").fixes[0].spelling
    starved.knobs = {"vllm.tensor_parallel_size": 2}
    assert (
        finding_in(starved, "GD027").fixes[0].spelling.startswith("move about 1 of the 2 GPUs of t")
    )


def test_a_rollout_that_hardly_waits_passes() -> None:
    passed(ahead(0.9), "GD027")


def test_what_is_generated_for_nothing_is_surplus() -> None:
    build = overlapping(0.5)
    for number in range(STEPS):
        build.metrics(number, **{
            "rollout/generated_tok_s": 1000.0, "perf/trained_tok_s_wall_clock": 700.0,
            "sample/dropped_stale_total": 3.0, "batch/dropped_oversize_total": 1.0,
            "sample/staleness_mean": 2.5, "sample/rollout_queue_size": 12.0,
        })  # fmt: skip
    finding = finding_in(build, "GD027")
    assert "generates 30% in vain" in finding.cause
    assert value(finding, "generated but never trained on") == pytest.approx(30.0)
    assert value(finding, "samples dropped") == 4.0 * STEPS
    assert value(finding, "staleness of samples") == 2.5
    assert value(finding, "samples in the queue") == 12.0


def test_verls_counts_since_the_beginning() -> None:
    build = overlapping(0.5)
    for number in range(STEPS):
        build.metrics(number, **{
            "fully_async/count/total_generated_samples": 100.0 * (number + 1),
            "fully_async/count/dropped_stale_samples": 25.0 * (number + 1),
        })  # fmt: skip
    finding = finding_in(build, "GD027")
    assert value(finding, "samples dropped") == 25.0 * STEPS
    assert value(finding, "generated but never trained on") == pytest.approx(25.0)


@pytest.mark.parametrize(("queue_s", "side"), [(4.0, "train"), (4.1, "rollout")])
def test_the_side_that_waits_longer_is_told_and_of_both_the_trainer(
    queue_s: float, side: str
) -> None:
    build = overlapping(4.0)
    for number in range(STEPS):
        build.span(2, "rollout/queue", 10.0 * number, 10.0 * number + queue_s)
    starts = {"train": "The training ranks wait 40%", "rollout": "The rollout waits 41%"}
    assert finding_in(build, "GD027").cause.startswith(starts[side])


def test_ranks_that_do_nothing_but_wait_get_no_factor() -> None:
    cause = finding_in(overlapping(10.0, loop=False), "GD027").cause
    assert cause == "The training ranks wait 100% of each step for samples."


@pytest.mark.parametrize(
    ("generate_s", "reward_s", "tools_s", "to_do"),
    [
        (10.0, 8.0, 0.0, "make the reward faster"),
        (10.0, 7.9, 0.0, "move GPUs from training"),
        (5.0, 5.0, 0.0, "move GPUs from training"),
        (5.0, 5.1, 0.0, "make the reward faster"),
        (2.0, 5.0, 5.0, "make the tools (most of it search) faster"),
        (5.0, 1.0, 5.0, "move GPUs from training"),
        (5.0, 1.0, 5.1, "make the tools (most of it search) faster"),
    ],
)
def test_what_is_at_work_longest_is_to_be_made_faster(
    generate_s: float, reward_s: float, tools_s: float, to_do: str
) -> None:
    build = overlapping(4.0, generate_s=generate_s, reward_s=reward_s)
    for number in range(STEPS if tools_s else 0):
        for name in ("rollout/tools", "rollout/tools/search"):
            build.span(2, name, 10.0 * number, 10.0 * number + tools_s)
    text = finding_in(build, "GD027").fixes[0].spelling
    assert text.startswith(to_do)
    reason = "they take more of the rollout loop's time than generation"
    assert text.endswith(reason) is ("tools" in to_do)


def test_tools_that_take_half_of_a_trajectory_leave_as_much_to_the_engine() -> None:
    build = overlapping(4.0)
    for number in range(STEPS):
        build.metrics(number, **{
            "tools/latency_s": 2.5, "tools/parallel_calls_mean": 1.0,
            "rollout/turns_mean": 3.0, "rollout/duration_s": 10.0,
        })  # fmt: skip
    assert finding_in(build, "GD027").fixes[0].spelling.startswith("move GPUs from training")
