from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import STEPS, rows, with_knobs


def gathering(
    count: int, each_s: float, *, knobs: dict[str, object] | None = None, spans: bool = True
) -> TraceBuilder:
    """Two ranks that send their weights in so many parts; a tenth of them takes twice as long."""
    build = TraceBuilder(
        ranks=2,
        knobs=with_knobs(deepspeed__stage=3) if knobs is None else knobs,
        framework="ms-swift",
        framework_version="4.6.0",
    )
    sequence = 0
    for number in range(STEPS):
        at = 20.0 * number
        for rank in (0, 1):
            now = at + 5.0
            build.span(rank, "rollout", at, now)
            begun, own = now, sequence
            for part in range(count):
                length = each_s * (2 if part % 10 == 9 else 1)
                if spans:
                    build.span(rank, "sync/gather", now, now + length, depth=2)
                else:
                    build.collective(rank, own, now, now + length)
                own += 1
                now += length
            build.span(rank, "sync", begun, now)
            build.span(rank, "train", now, now + 3.0)
            build.step(rank, number, at, {}, end_s=now + 3.0)
        sequence += count
    return build


def without_a_sync_there_is_no_question() -> TraceBuilder:
    build = TraceBuilder(ranks=2)
    for number in range(STEPS):
        for rank in (0, 1):
            build.step(rank, number, 9.0 * number, {"rollout": 4.0, "train": 4.0})
    return build


RUNS = {
    "sick": lambda: gathering(300, 0.006),
    "well": lambda: gathering(8, 0.2),
    "a short sync is left alone": lambda: gathering(300, 0.0005),
    "collectives stand in for spans without a cost": lambda: gathering(300, 0.006, spans=False),
    "a set number of parts is another rules": lambda: gathering(
        300, 0.006, knobs=with_knobs(deepspeed__stage=3, sync__move_model_batches=300)
    ),
    **rows("sixty four gathers are many", lambda count: gathering(count, 0.02), 64, 63),
}
