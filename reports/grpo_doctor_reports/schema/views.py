"""The part of the document that charts draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import field

from grpo_doctor_reports.schema.part import Name, Numbers, Part, Prose


class Buckets(Part, frozen=True):
    """Neighboring steps taken together, one item per bucket in each list.

    `used` says whether the summary's means are over them; no bucket has both sorts. `kind` is
    steady, or what most of those that are not steady are: warmup, eval, checkpoint or open.
    """

    first: list[int] = []
    last: list[int] = []
    steps: list[int] = []
    used: list[bool] = []
    kind: list[Name] = []
    start_s: Numbers = []
    end_s: Numbers = []


class StepBuckets(Buckets, frozen=True):
    """Means over ranks, then over the bucket's steps; the worst is the longest of its steps.

    Of the used ones, seconds times steps of all buckets add up to the summary's times its steps.
    `wait_seconds` are the part of `phase_seconds` that is spent for other ranks. The medians are
    over the steady steps, each by itself.
    """

    seconds: Numbers = []
    worst_seconds: Numbers = []
    worst_step: list[int] = []
    worst_rank: list[int | None] = []
    phase_seconds: dict[Name, Numbers] = {}
    wait_seconds: dict[Name, Numbers] = {}
    median_seconds: float | None = None
    median_phase_seconds: dict[Name, float] = {}


class RankBuckets(Buckets, frozen=True):
    """Means over the bucket's steps by phase, rank (outer list) and bucket (inner)."""

    ranks: list[int] = []
    phase_seconds: dict[Name, list[Numbers]] = {}
    wait_seconds: dict[Name, list[Numbers]] = {}


class ExactWindow(Part, frozen=True):
    """A stretch of which every span is drawn, but those that are counted here.

    `why` is whole, open, median, worst, named (by a finding), start, end or slow; the step is null
    for whole, start and end.
    """

    why: Name = ""
    step: int | None = None
    start_s: float = 0.0
    end_s: float = 0.0


class ExactLane(Part, frozen=True):
    """The spans of one rank in all windows, by start, parents first; one item each in most lists.

    `name` indexes the names of all lanes, `depth` counts the spans around. `meeting` is the same
    number on every rank of a collective and -1 elsewhere. `open` are the places of spans that
    never ended; `wait_s` are start and end of each stretch that was spent for another rank.
    """

    rank: int = 0
    name: list[int] = []
    depth: list[int] = []
    start_s: list[float] = []
    end_s: list[float] = []
    meeting: list[int] = []
    open: list[int] = []
    wait_s: list[float] = []


class Exact(Part, frozen=True):
    """Every span of some windows, but for those of up to `longest_left_out_s`."""

    windows: list[ExactWindow] = []
    names: list[Name] = []
    collectives: list[Name] = []
    lanes: list[ExactLane] = []
    spans_left_out: int = 0
    longest_left_out_s: float = 0.0


class TrackEntry(Part, frozen=True):
    """A sampled series, thinned so that no peak is lost; group is gpu, host or rank."""

    name: Name = ""
    label: Prose = ""
    unit: Name = ""
    group: Name = ""
    t_s: Numbers = []
    v: Numbers = []


class Timeline(Part, frozen=True):
    """The run over time; `tracks_left_out` counts the series that are not in it."""

    end_s: float = 0.0
    tracks: list[TrackEntry] = []
    tracks_left_out: int = 0
    ranks: RankBuckets = field(default_factory=RankBuckets)
    exact: Exact = field(default_factory=Exact)


class RankMeans(Part, frozen=True):
    """Mean seconds per used step of every rank: its own work, and waiting for other ranks."""

    ranks: list[int] = []
    own_seconds: Numbers = []
    wait_seconds: Numbers = []


class Heatmap(Part, frozen=True):
    """Seconds by rank (outer list) and step (inner); null where a rank has no such step.

    Of more ranks or steps than fit, each stands for its neighbors and is the slowest of them;
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

    `kind` is warmup, steady, eval, checkpoint or open; the slowest rank has the most own work, and
    is null where there is but one rank.
    """

    number: int = 0
    start_s: float = 0.0
    end_s: float = 0.0
    seconds: float | None = None
    kind: Name = "steady"
    slowest_rank: int | None = None


class PathSegment(Part, frozen=True):
    """A stretch of a critical path; lane is rank or engine, kind is work, transfer or idle."""

    lane: Name = ""
    rank: int | None = None
    phase: Name = ""
    name: Name = ""
    start_s: float = 0.0
    end_s: float = 0.0
    kind: Name = "work"


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

    heatmap: Heatmap = field(default_factory=Heatmap)
    timeline: Timeline = field(default_factory=Timeline)
    metrics: MetricsView = field(default_factory=MetricsView)
    evaluation: Evaluation | None = None
    steps: list[StepEntry] = []
    step_buckets: StepBuckets = field(default_factory=StepBuckets)
    critical_path: CriticalPath | None = None
    critical_path_worst: CriticalPath | None = None
    collectives: list[CollectiveEntry] = []

    def damage(self) -> Iterator[str]:
        """Tables whose columns are not equally long, and spans without a name."""
        steps, ranks, heatmap = self.step_buckets, self.timeline.ranks, self.heatmap
        for place, part in (("step_buckets", steps), ("timeline.ranks", ranks)):
            yield from _uneven(
                place, part.first, part.last, part.steps, part.used, part.kind, part.start_s,
                part.end_s,
            )  # fmt: skip
        yield from _uneven(
            "step_buckets", steps.first, steps.seconds, steps.worst_seconds, steps.worst_step,
            steps.worst_rank, *steps.phase_seconds.values(), *steps.wait_seconds.values(),
        )  # fmt: skip
        for rows in (*ranks.phase_seconds.values(), *ranks.wait_seconds.values()):
            yield from _uneven("timeline.ranks", ranks.ranks, rows)
            yield from _uneven("timeline.ranks", ranks.first, *rows)
        for rows in (heatmap.step_seconds, heatmap.wait_seconds, *heatmap.phase_seconds.values(),
                     *heatmap.phase_wait_seconds.values()):  # fmt: skip
            if rows:
                yield from _uneven("heatmap", heatmap.ranks, rows)
                yield from _uneven("heatmap", heatmap.steps, *rows)
        for track in self.timeline.tracks:
            yield from _uneven("timeline.tracks", track.t_s, track.v)
        for lane in self.timeline.exact.lanes:
            yield from _uneven(
                "timeline.exact.lanes", lane.name, lane.depth, lane.start_s, lane.end_s,
                lane.meeting,
            )  # fmt: skip
            yield from _uneven("timeline.exact.lanes", lane.wait_s[::2], lane.wait_s[1::2])
            names = range(len(self.timeline.exact.names))
            if lane.name and not (min(lane.name) in names and max(lane.name) in names):
                yield "views.timeline.exact.lanes: a span has no name"
        yield from _uneven("metrics", self.metrics.steps, *self.metrics.series.values())
        if self.evaluation:
            yield from _uneven("evaluation", self.evaluation.steps, self.evaluation.values)


def _uneven(place: str, *columns: Sequence[Any]) -> Iterator[str]:
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        yield f"views.{place}: Expected columns of one length, got {sorted(lengths)}"
