from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import OFFLOADED, offloaded
from tests.unit.findings.rules.saying import even, rows, run, step_starts, with_knobs

GB = 1e9


def moving(
    bytes_per_rollout: float, memory_gib: tuple[float, float] | None = (40, 72)
) -> TraceBuilder:
    """Two seconds of offload per step for so many bytes, out and back."""
    build = run(
        OFFLOADED,
        knobs=with_knobs(offload__optimizer=True, deepspeed__preset="ds.json"),
        memory_gib=memory_gib,
    )
    times = [start + 1.0 for start in step_starts(OFFLOADED)]
    for rank in range(4):
        build.series(
            "offload/bytes", "", times, [bytes_per_rollout] * len(times), scope="counter", rank=rank
        )
    return build


def traffic(bytes_per_s: float) -> TraceBuilder:
    build = run()
    times = [start + at for start in step_starts() for at in (0.0, 6.4, 9.2)]
    for rank in range(4):
        values = [0.0, bytes_per_s, 0.0] * len(step_starts())
        build.series("gpu.pcie_rx", "bytes/s", times, values, scope="gpu", gpu=f"GPU-{rank}")
    return build


def sick() -> TraceBuilder:
    return moving(3 * GB)


def well() -> TraceBuilder:
    return moving(22 * GB)


def crossing(bytes_per_s: float, train_s: float = 5.0) -> TraceBuilder:
    """A rank whose link is as busy all the time."""
    build = even({"train": train_s})
    build.gpu("GPU-0")
    times, values = [0.0, 40.0], [bytes_per_s, bytes_per_s]
    return build.series("gpu.pcie_tx", "bytes/s", times, values, scope="gpu", gpu="GPU-0").series(
        "gpu.pcie_rx", "bytes/s", [100.0, 140.0], [25 * GB, 25 * GB], scope="gpu", gpu="GPU-0"
    )


RUNS = {
    "a link that is busy through a phase is found": lambda: traffic(18 * GB),
    "some traffic passes": lambda: traffic(4 * GB),
    "without a gpu there is no link": lambda: moving(3 * GB, None),
    "without numbers it says what takes them": run,
    "the known patient moves at full speed": offloaded,
    **rows(
        "a link is busy at half of what it moves",
        lambda gb_per_s: crossing(gb_per_s * GB),
        12.0,
        11.9,
    ),
    **rows(
        "a phase is looked at from a twentieth of the step on",
        lambda train_s: crossing(20 * GB, train_s),
        0.5,
        0.49,
    ),
}
