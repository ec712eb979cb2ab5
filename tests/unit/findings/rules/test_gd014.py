from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules import saying

LENGTHS = ("completions/max_length", "completions/mean_length")
KNOBS = saying.with_knobs(rollout__max_completion_length=4096)


def decaying(
    full_s: float, *, peak: float = 64.0, knobs: dict[str, object] = KNOBS
) -> TraceBuilder:
    """Engines that are full for so long and then have two requests left, of 5 s of rollout."""
    build = saying.run(knobs=knobs)
    times: list[float] = []
    values: list[float] = []
    for start in saying.step_starts():
        times += [start + 0.15, start + 0.15 + full_s, start + 5.5]
        values += [peak, 2.0, 0.0]
    for rank in range(4):
        build.series("engine/running_requests", "", times, values, scope="counter", rank=rank)
    return build


def with_lengths(build: TraceBuilder) -> TraceBuilder:
    """63 of 64 completions of up to 512 tokens, one of up to 4096."""
    return saying.counted(
        build,
        {
            "engine/completions_of_257_to_512_tokens": 63.0,
            "engine/completions_of_2049_to_4096_tokens": 1.0,
        },
    )


def apart(
    ratio: float | None, train_s: float = 3.0, logged: tuple[str, ...] = LENGTHS
) -> TraceBuilder:
    """Another rank's rollout takes 3 s longer in each step."""
    build = TraceBuilder(ranks=2, knobs=KNOBS)
    for number in range(saying.STEPS):
        at, late = 9.0 * number, number % 2
        for rank in (0, 1):
            rollout = 5.0 if rank == late else 2.0
            build.step(
                rank, number, at, {"rollout": rollout, "reward": 5.0 - rollout, "train": train_s}
            )
            build.collective(rank, number, at + rollout, at + 5.0)
        if ratio is not None:
            lengths = dict(zip(LENGTHS, (100 * ratio, 100.0), strict=True))
            build.metrics(number, **{name: lengths[name] for name in logged})
    return build


def one_rank_that_is_always_late_is_no_tail() -> TraceBuilder:
    build = saying.run(slow={1: {"rollout": 3.0}}, knobs=KNOBS)
    for number in range(saying.STEPS):
        build.metrics(number, **dict(zip(LENGTHS, (400.0, 100.0), strict=True)))
    return build


def with_running(build: TraceBuilder, samples: list[tuple[float, float]]) -> TraceBuilder:
    """What ran in the engines of `apart` at some moments of each rollout."""
    times = [9.0 * number + at for number in range(saying.STEPS) for at, _ in samples]
    values = [requests for _ in range(saying.STEPS) for _, requests in samples]
    for rank in (0, 1):
        build.series("engine/running_requests", "", times, values, scope="counter", rank=rank)
    return build


RUNS = {
    "sick": lambda: with_lengths(decaying(1.0)),
    "well": lambda: decaying(4.6),
    **saying.rows("a limit is advised where it cuts a quarter", lambda limit: with_lengths(
        decaying(1.0, knobs={**KNOBS, "rollout.max_completion_length": limit})),
        512 / 0.75, 511 / 0.75),
    **saying.rows("one length without the other says nothing", lambda name: with_running(
        apart(4.0, logged=(name,)), [(0.0, 8.0), (4.0, 0.0)]), *LENGTHS),
    "without lengths more prompts are": lambda: decaying(1.0),
    "an engine of few requests always ends with few": lambda: decaying(1.0, peak=8.0),
    "ranks that finish apart with equal lengths do not": lambda: apart(1.1),
    "without curve or lengths it says what to record": saying.run,
    **saying.rows("sixteen requests are the fewest that have a tail",
        lambda peak: with_running(apart(None), [(0.0, peak), (1.0, 1.0), (2.0, 0.0)]), 16.0, 15.0),
    **saying.rows("lengths differ from three times the mean on", apart, 3.0, 2.99),
    **saying.rows(
        "a tail is told by the engine where it is as long as ranks",
        lambda emptied_s: with_running(
            apart(4.0, train_s=1.0), [(0.0, 64.0), (2.0 - emptied_s, 2.0), (2.0, 0.0)]
        ),
        1.5,
        1.4,
    ),
    **saying.rows("an engine that was seen nearly empty is as severe as it is",
        lambda full_s: decaying(full_s - 0.9), 4.0, 1.0),
    "ranks that finish apart by turns wait for lengths": lambda: apart(4.0),
}  # fmt: skip
