from __future__ import annotations

from grpo_doctor_reports.schema.trajectories import Spread, Trajectories
from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import named

STEPS = 6


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


def a_reward_at_work_all_the_time_is_what_samples() -> TraceBuilder:
    build = overlapping(4.0, generate_s=10.0, reward_s=9.0)
    for number in range(STEPS):
        build.span(2, "reward/judge", 10.0 * number + 1, 10.0 * number + 9)
        build.span(2, "reward/queue", 10.0 * number, 10.0 * number + 5)
        build.span(2, "rollout/queue", 10.0 * number, 10.0 * number + 1)
    return build


def tools_against_the_engine_by_what_trajectories(tools_s: float) -> TraceBuilder:
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
    return build


def requests_in_the_queue_of_the_engine(queued: float, tool: float = 0.0) -> TraceBuilder:
    build = overlapping(4.0)
    spent = {"engine queue": queued, "prefill": 1.0, "decode": 9.0 - queued, "tool": tool}
    states = {state: Spread(total=seconds) for state, seconds in spent.items()}
    build.trajectories = Trajectories(count=5, states={**states, "buffer": Spread(total=50.0)})
    return build


def the_pause_for_new_weights_is_the_rollouts() -> TraceBuilder:
    build = overlapping(4.0)
    for number in range(STEPS):
        build.span(0, "sync", 10.0 * number + 8, 10.0 * number + 10)
        build.span(0, "sync/pause", 10.0 * number + 8, 10.0 * number + 8.1)
    return build


def what_was_dropped_of_what_came_to_the_trainer() -> TraceBuilder:
    build = overlapping(0.5)
    for number in range(STEPS):
        build.metrics(number, **{
            "rollout/generated_tok_s": 1000.0, "perf/trained_tok_s_wall_clock": 400.0,
            "batch/samples_per_step": 8.0, "sample/dropped_stale_total": 2.0,
        })  # fmt: skip
    return build


def phases_one_after_the_other_are_another_matter() -> TraceBuilder:
    build = TraceBuilder()
    for number in range(STEPS):
        build.step(0, number, 10.0 * number, {"rollout": 5.0, "train": 5.0})
    return build


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
        build.span(ranks, "rollout/generate", at + queue_s, at + 10.0)
    return build


def how_many_gpus_to_move_is_said_where_both() -> TraceBuilder:
    starved = overlapping(5.0)
    starved.knobs = {"vllm.tensor_parallel_size": 1}
    return starved


def how_many_gpus_to_move_is_said_where_both_2() -> TraceBuilder:
    starved = overlapping(5.0)
    starved.knobs = {"vllm.tensor_parallel_size": 2}
    return starved


def what_is_generated_for_nothing_is_surplus() -> TraceBuilder:
    build = overlapping(0.5)
    for number in range(STEPS):
        build.metrics(number, **{
            "rollout/generated_tok_s": 1000.0, "perf/trained_tok_s_wall_clock": 700.0,
            "sample/dropped_stale_total": 3.0, "batch/dropped_oversize_total": 1.0,
            "sample/staleness_mean": 2.5, "sample/rollout_queue_size": 12.0,
        })  # fmt: skip
    return build


def dropped_samples_while_the_trainer_waits_are_no_spare_time() -> TraceBuilder:
    build = overlapping(3.0, generate_s=10.0)
    for number in range(STEPS):
        build.metrics(number, **{
            "batch/samples_per_step": 6.0, "sample/dropped_stale_total": 4.0,
        })  # fmt: skip
    return build


def verls_counts_since_the_beginning() -> TraceBuilder:
    build = overlapping(0.5)
    for number in range(STEPS):
        build.metrics(number, **{
            "fully_async/count/total_generated_samples": 100.0 * (number + 1),
            "fully_async/count/dropped_stale_samples": 25.0 * (number + 1),
        })  # fmt: skip
    return build


def the_side_that_waits_longer_is_told_and_of_both(queue_s: float) -> TraceBuilder:
    build = overlapping(4.0, generate_s=10.0 - queue_s)
    for number in range(1, STEPS + 1):
        build.span(2, "rollout/queue", 10.0 * number - queue_s, 10.0 * number)
    return build


def a_wait_with_requests_in_flight_is_no_idle_time() -> TraceBuilder:
    build = overlapping(0.5, generate_s=9.5)
    for number in range(STEPS):
        build.span(2, "rollout/queue", 10.0 * number + 4, 10.0 * number + 10)
    return build


def what_is_at_work_longest_is_to_be_made_faster(
    generate_s: float, reward_s: float, tools_s: float
) -> TraceBuilder:
    build = overlapping(4.0, generate_s=generate_s, reward_s=reward_s)
    for number in range(STEPS if tools_s else 0):
        for name in ("rollout/tools", "rollout/tools/search"):
            build.span(2, name, 10.0 * number, 10.0 * number + tools_s)
    return build


def tools_that_take_half_of_a_trajectory_leave_as() -> TraceBuilder:
    build = overlapping(4.0)
    for number in range(STEPS):
        build.metrics(number, **{
            "tools/latency_s": 2.5, "tools/parallel_calls_mean": 1.0,
            "rollout/turns_mean": 3.0, "rollout/duration_s": 10.0,
        })  # fmt: skip
    return build


RUNS = {
    "sick": lambda: overlapping(4.0),
    "well": lambda: overlapping(0.5),
    "the ranks wait for samples": lambda: overlapping(4.0),
    "a reward that takes more than generating is what to fix": lambda: overlapping(4.0,
        generate_s=2.0, reward_s=7.0),
    "without a recording of the loop the wait alone is told": lambda: overlapping(9.0, loop=False),
    "ranks that hardly wait pass": lambda: overlapping(0.9),
    "a wait of a tenth is a finding": lambda: overlapping(1.0),
    "a rollout without room is the other side": lambda: ahead(6.0),
    "how many gpus to move is said where both numbers are known 1": lambda: ahead(6.0, ranks=8,
        vllm__tensor_parallel_size=4, vllm__data_parallel_size=2),
    "a rollout that hardly waits passes": lambda: ahead(0.9),
    **named(the_side_that_waits_longer_is_told_and_of_both, 4.0, 4.1),
    "ranks that do nothing but wait get no factor": lambda: overlapping(10.0, loop=False),
    **named(what_is_at_work_longest_is_to_be_made_faster, (10.0, 8.0, 0.0), (10.0, 7.9, 0.0),
        (5.0, 5.0, 0.0), (5.0, 5.1, 0.0), (2.0, 5.0, 5.0), (5.0, 1.0, 5.0), (5.0, 1.0, 5.1)),
    **named(requests_in_the_queue_of_the_engine, (3.0, 0.0), (2.9, 0.0), (5.0, 10.1)),
    **named(tools_against_the_engine_by_what_trajectories, 6.0, 4.0),
}  # fmt: skip
