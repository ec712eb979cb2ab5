from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import GIB
from tests.unit.findings.rules.saying import STEPS, rows, with_knobs


def waking(
    before: float, after: float, knobs: dict[str, object], *, sync_gib: float | None = None
) -> TraceBuilder:
    """Ranks that wake something before the sync and after it, and sleep after the rollout."""
    build = TraceBuilder(ranks=2, knobs=knobs, framework="ms-swift", framework_version="4.6.0")
    for number in range(STEPS):
        at = 20.0 * number
        now = at + 0.1
        for rank in (0, 1):
            now = at + 0.1
            build.span(rank, "dataload", at, now)
            order = [
                ("offload", before), ("sync", 0.5), ("offload", after), ("rollout", 5.0),
                ("offload", 0.4), ("reward", 0.2), ("train", 4.0),
            ]  # fmt: skip
            for name, seconds in order:
                if seconds:
                    build.span(rank, name, now, now + seconds)
                    now += seconds
            build.collective(rank, number, now - 0.1, now)
            build.step(rank, number, at, {}, end_s=now)
        if sync_gib is not None:
            in_sync = at + 0.1 + before
            times, values = [at, in_sync, in_sync + 0.5], [20.0, sync_gib, 20.0]
            for rank in (0, 1):
                build.series(
                    "gpu.memory_used", "bytes", times, [GIB * v for v in values],
                    scope="gpu", gpu=f"GPU-{rank}",
                )  # fmt: skip
    if sync_gib is not None:
        for rank in (0, 1):
            build.gpu(f"GPU-{rank}", index=rank)
    return build


LEVEL_1, LEVEL_2 = with_knobs(vllm__sleep_level=1), with_knobs(vllm__sleep_level=2)


RUNS = {
    "sick": lambda: waking(1.5, 0.3, LEVEL_1),
    "well": lambda: waking(0.1, 0.3, LEVEL_2),
    "adapters need their base back": lambda: waking(1.5, 0.3,
        {**LEVEL_1, "vllm.enable_lora": True}),
    "a cache that is woken first needs a full gpu to matter": lambda: waking(0.2, 0.0, LEVEL_2,
        sync_gib=76.0),
    "a cache that is woken first with room passes 1": lambda: waking(0.2, 0.0, LEVEL_2,
        sync_gib=40.0),
    "a cache that is woken first with room passes 2": lambda: waking(0.2, 0.0, LEVEL_2),
    "the right order passes": lambda: waking(0.0, 0.3, LEVEL_2),
    "an engine that stays awake has no order": lambda: waking(0.2, 0.0,
        with_knobs(vllm__sleep_level=0)),
    **rows("memory is full at nine tenths",
        lambda sync_gib: waking(0.2, 0.0, LEVEL_2, sync_gib=sync_gib), 72.0, 71.9),
}  # fmt: skip
