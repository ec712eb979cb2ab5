"""The part of the document that charts draw."""

from __future__ import annotations

from typing import TypedDict

Numbers = list[float | None]


class WaterfallEntry(TypedDict):
    """One phase of the mean step; phases follow each other in the order in which they start."""

    phase: str
    start_s: float
    seconds: float
    p10_s: float
    p90_s: float
    work_seconds: float
    wait_seconds: float
    transfer_seconds: float
    idle_seconds: float


class Heatmap(TypedDict):
    """Seconds by rank (outer list) and step (inner); null where a rank has no such step."""

    ranks: list[int]
    steps: list[int]
    step_seconds: list[Numbers]
    phase_seconds: dict[str, list[Numbers]]
    wait_seconds: list[Numbers]


class Band(TypedDict):
    """A stretch that one rank spent in one phase; seconds since the trace began."""

    rank: int
    phase: str
    start_s: float
    end_s: float
    open: bool


class TrackEntry(TypedDict):
    """A sampled series, thinned so that no peak is lost; group is gpu, host or rank."""

    name: str
    label: str
    unit: str
    group: str
    t_s: list[float]
    v: Numbers


class Timeline(TypedDict):
    """The run over time; `thinned` says that not every rank or span is shown."""

    end_s: float
    bands: list[Band]
    tracks: list[TrackEntry]
    thinned: bool


class MetricsView(TypedDict):
    """Training metrics by step."""

    steps: list[int]
    series: dict[str, Numbers]


class StepEntry(TypedDict):
    """One step on the timeline: from the first rank that began it to the last that ended it.

    `kind` is warmup, steady, eval, checkpoint or open; the slowest rank has the most own work.
    """

    number: int
    start_s: float
    end_s: float
    seconds: float | None
    kind: str
    slowest_rank: int | None


class PathSegment(TypedDict):
    """A stretch of a critical path; lane is rank or engine, kind is work, transfer or idle."""

    lane: str
    rank: int | None
    phase: str
    name: str
    start_s: float
    end_s: float
    kind: str


class CriticalPath(TypedDict):
    """What a step's length was made of: at each moment the rank that all others waited for."""

    step: int
    seconds: float
    segments: list[PathSegment]


class CollectiveEntry(TypedDict):
    """Collectives of one group, name and phase per step: how many, seconds in them (mean of their
    ranks), first to last arrival, and last arrival to the end; who came last most often."""

    group: str
    name: str
    phase: str
    count: float
    seconds: float
    skew_seconds: float
    transfer_seconds: float
    last_rank: int


class Views(TypedDict):
    """What charts draw. The paths are those of the median and the longest step; null without."""

    waterfall: list[WaterfallEntry]
    heatmap: Heatmap
    timeline: Timeline
    metrics: MetricsView
    steps: list[StepEntry]
    critical_path: CriticalPath | None
    critical_path_worst: CriticalPath | None
    collectives: list[CollectiveEntry]
