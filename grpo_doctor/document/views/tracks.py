"""Sampled series for charts: few points, no peak lost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.document.numbers import SECONDS_DIGITS, significant_column
from grpo_doctor.trace.model import Series, Trace
from grpo_doctor_reports.schema.views import TrackEntry

MAX_POINTS = 500
# A page with 64 GPUs would hold 500 tracks; a reader looks at these few, in this order.
MAX_TRACKS = 48
_ORDER = (
    "gpu.util",
    "gpu.sm_active",
    "gpu.memory_used",
    "host.cpu",
    "rank.cpu",
    "host.memory_available",
    "gpu.power",
    "gpu.sm_clock",
    "host.psi_cpu",
    "host.psi_io",
    "host.psi_memory",
)
_GROUPS = {"gpu": "gpu", "host": "host", "rank": "rank", "counter": "rank"}


def track_entries(trace: Trace) -> tuple[list[TrackEntry], int]:
    """The series to draw, and how many were left out."""
    sampled = [s for s in trace.series if np.isfinite(s.values).any()]
    sampled.sort(key=lambda s: (_importance(s.name), s.name))
    chosen = sampled[:MAX_TRACKS]
    several_hosts = len({s.host for s in chosen}) > 1
    index = {gpu.uuid: gpu.index for gpu in trace.gpus}
    entries = []
    for series in chosen:
        t_ns, values = thinned(series.t_ns, series.values, MAX_POINTS)
        entries.append(
            TrackEntry(
                name=series.name,
                label=_label_of_server(trace, series)
                if series.of_joined_server
                else _label(series, index, several_hosts),
                unit=series.unit,
                group="rank" if series.of_joined_server else _GROUPS.get(series.scope, "host"),
                t_s=np.round(t_ns / 1e9, min(3, SECONDS_DIGITS)).tolist(),
                v=significant_column(values),
            )
        )
    return entries, len(sampled) - len(chosen)


def thinned(
    t_ns: NDArray[np.int64], values: NDArray[np.float64], limit: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """At most `limit` points: the smallest and the largest of each stretch of samples."""
    if len(values) <= limit:
        return t_ns, values
    edges = np.linspace(0, len(values), limit // 2 + 1).astype(np.intp)[:-1]
    size = np.diff(np.r_[edges, len(values)])
    bucket = np.repeat(np.arange(len(edges)), size)
    # Unknown values sort last, so the largest known one is the last before them.
    order = np.lexsort((values, bucket))
    finite = np.add.reduceat(np.isfinite(values).astype(np.intp), edges)
    lowest, highest = order[edges], order[edges + np.maximum(finite - 1, 0)]
    rows = np.unique(np.concatenate([lowest, highest]))
    return t_ns[rows], values[rows]


def _importance(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _label_of_server(trace: Trace, series: Series) -> str:
    server = trace.server_of(series)
    role = "server" if server is None else server.role
    return f"{role} of {series.host}, pid {series.pid}: {series.name}"


def _label(series: Series, index: dict[str, int], several_hosts: bool) -> str:
    words = [series.name]
    if series.gpu is not None:
        words.append(f"GPU {index.get(series.gpu, series.gpu)}")
    if series.rank is not None:
        words.append(f"rank {series.rank}")
    elif series.pid is not None:
        words.append(f"pid {series.pid}")
    if several_hosts and series.host:
        words.append(series.host)
    return " ".join(words)
