"""The part of the document that charts draw."""

from __future__ import annotations

from msgspec import field

from grpo_doctor_reports.schema.part import Name, Numbers, Part
from grpo_doctor_reports.schema.timeline import StepBuckets, Timeline


class WaterfallEntry(Part, frozen=True):
    """One phase of the mean step; phases follow each other in the order in which they start."""

    phase: Name = ""
    start_s: float = 0.0
    seconds: float = 0.0
    p10_s: float | None = None
    p90_s: float | None = None
    steps: int | None = None
    work_seconds: float = 0.0
    wait_seconds: float = 0.0
    transfer_seconds: float = 0.0
    idle_seconds: float = 0.0


class RankMeans(Part, frozen=True):
    """Mean seconds per used step of every rank: its own work, and waiting for other ranks."""

    ranks: list[int] = []
    own_seconds: Numbers = []
    wait_seconds: Numbers = []


class Heatmap(Part, frozen=True):
    """Seconds by rank (outer list) and step (inner); null where a rank has no such step.

    Of more ranks or steps than fit, each stands for its neighbours and is the slowest of them;
    `means` has all ranks, and `steps_total` is how many steps there are. What of a phase is not
    in `phase_wait_seconds` is the rank's own work.
    """

    ranks: list[int] = []
    steps: list[int] = []
    step_seconds: list[Numbers] = []
    phase_seconds: dict[Name, list[Numbers]] = {}
    wait_seconds: list[Numbers] = []
    phase_wait_seconds: dict[Name, list[Numbers]] = {}
    steps_total: int = 0
    means: RankMeans = field(default_factory=RankMeans)


class MetricsView(Part, frozen=True):
    """Training metrics by step; `steps_without_number` counts those at which a metric was logged
    as NaN or infinite."""

    steps: list[int] = []
    series: dict[Name, Numbers] = {}
    steps_without_number: dict[Name, int] = {}


class Evaluation(Part, frozen=True):
    """Evaluations during training, each at the step after which it was, as rewards or losses.

    `metric` is the framework's name of them. `best_step` is the first with the highest reward or
    the lowest loss; `best_saved` says that a checkpoint was written in it.
    """

    metric: Name = ""
    steps: list[int] = []
    values: Numbers = []
    best_step: int | None = None
    best_saved: bool = False


class StepEntry(Part, frozen=True):
    """One step on the timeline: from the first rank that began it to the last that ended it.

    `kind` is warmup, steady, eval, checkpoint or open; the slowest rank has the most own work.
    """

    number: int = 0
    start_s: float | None = None
    end_s: float | None = None
    seconds: float | None = None
    kind: Name = ""
    slowest_rank: int | None = None


class PathSegment(Part, frozen=True):
    """A stretch of a critical path; lane is rank or engine, kind is work, transfer or idle."""

    lane: Name = ""
    rank: int | None = None
    phase: Name = ""
    name: Name = ""
    start_s: float | None = None
    end_s: float | None = None
    kind: Name = ""


class CriticalPath(Part, frozen=True):
    """What a step's length was made of: at each moment the rank that all others waited for."""

    step: int = 0
    seconds: float = 0.0
    segments: list[PathSegment] = []


class CollectiveEntry(Part, frozen=True):
    """Collectives of one group, name and phase per step: how many, seconds in them (mean of their
    ranks), first to last arrival, and last arrival to the end; who came last most often."""

    group: Name = ""
    name: Name = ""
    phase: Name = ""
    count: float = 0.0
    seconds: float = 0.0
    skew_seconds: float = 0.0
    transfer_seconds: float = 0.0
    last_rank: int | None = None


class Views(Part, frozen=True):
    """What charts draw. The paths are those of the median and the longest step, null without;
    so is `evaluation`."""

    waterfall: list[WaterfallEntry] = []
    heatmap: Heatmap = field(default_factory=Heatmap)
    timeline: Timeline = field(default_factory=Timeline)
    metrics: MetricsView = field(default_factory=MetricsView)
    evaluation: Evaluation | None = None
    steps: list[StepEntry] = []
    step_buckets: StepBuckets = field(default_factory=StepBuckets)
    critical_path: CriticalPath | None = None
    critical_path_worst: CriticalPath | None = None
    collectives: list[CollectiveEntry] = []
