"""The run over time as types. Lists of one object are equally long, which the reader sees to."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.timeline import Exact, TrackEntry


@dataclass(frozen=True, slots=True)
class Bucket:
    """Neighbouring steps taken together; `used` says whether the summary's means are over them."""

    first: int
    last: int
    steps: int
    used: bool
    kind: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Worst:
    """The longest step of a bucket, and the rank that worked longest in it."""

    seconds: float | None
    step: int
    rank: int | None


@dataclass(frozen=True, slots=True)
class StepBuckets:
    """Means over ranks; of each phase one number per bucket, None where it is not known.

    Medians are over the steady steps, each by itself.
    """

    buckets: list[Bucket]
    seconds: Numbers
    worst: list[Worst]
    phases_s: dict[str, Numbers]
    waits_s: dict[str, Numbers]
    median_s: float
    median_phases_s: dict[str, float]


@dataclass(frozen=True, slots=True)
class RankBuckets:
    """Means of each rank: by phase, by rank, a number per bucket."""

    buckets: list[Bucket]
    ranks: list[int]
    phases_s: dict[str, list[Numbers]]
    waits_s: dict[str, list[Numbers]]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Phases and samples over the whole run."""

    end_s: float
    ranks: RankBuckets
    exact: Exact
    tracks: list[TrackEntry]
    tracks_left_out: int
