"""The run over time: means of neighbouring steps everywhere, every span in a few windows."""

from __future__ import annotations

from msgspec import field

from grpo_doctor_reports.schema.part import Name, Numbers, Part, Prose


class Buckets(Part, frozen=True):
    """Neighbouring steps taken together, one item per bucket in each list.

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
    """Every span of some windows. Left out are the shortest, and none is longer than is said."""

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
    """The run over time.

    `thinned` says that it is long, or that series are left out; `tracks_left_out` counts those.
    """

    end_s: float = 0.0
    tracks: list[TrackEntry] = []
    tracks_left_out: int = 0
    thinned: bool = False
    ranks: RankBuckets = field(default_factory=RankBuckets)
    exact: Exact = field(default_factory=Exact)
