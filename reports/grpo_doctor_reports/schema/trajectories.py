"""What is kept of a run's trajectories: distributions of millions, and a few in full.

A trajectory lives from when it is begun until the trainer takes it. Each moment of that belongs to
one of `STATES`; what no hook saw is `other`.
"""

from __future__ import annotations

from msgspec import field

from grpo_doctor_reports.schema.part import Name, Part

STATES = (
    "queue", "engine queue", "prefill", "decode", "generate", "tool", "reward", "paused", "buffer",
    "other",
)  # fmt: skip


class PartShown(Part, frozen=True):
    """A stretch of a trajectory, in seconds since that began; `name` is that of a tool."""

    state: Name = "other"
    start_s: float = 0.0
    end_s: float = 0.0
    name: Name = ""
    failed: bool = False


class Shown(Part, frozen=True):
    """A trajectory in full, and `why`: slowest, failed, typical. `seconds` are until it was ready.

    `outcome` is one of trained, `dropped: REASON`, waiting (for the trainer), ready, failed, open.
    """

    why: Name = ""
    outcome: Name = ""
    start_s: float = 0.0
    seconds: float = 0.0
    states: dict[Name, float] = {}
    numbers: dict[Name, float] = {}
    requests: int = 0
    calls: int = 0
    failed_calls: int = 0
    aborted_requests: int = 0
    taken_step: int | None = None
    staleness: float | None = None
    parts: list[PartShown] = []
    parts_left_out: int = 0


class Spread(Part, frozen=True):
    """A sum over all trajectories, and how it is distributed over them."""

    total: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0


class ToolEntry(Part, frozen=True):
    """The calls of a tool that ended; `open` ones did not. `tail_seconds` are in the slowest tenth
    of trajectories; `saved_s` is how much earlier the last trajectory of a batch would have been
    ready, had no call taken longer than the median one; null where batches are unknown."""

    name: Name = ""
    calls: int = 0
    errors: int = 0
    time_outs: int = 0
    open: int = 0
    seconds: float = 0.0
    failed_seconds: float = 0.0
    p50_s: float = 0.0
    p99_s: float = 0.0
    longest_s: float = 0.0
    tail_seconds: float = 0.0
    saved_s: float | None = None


class Flow(Part, frozen=True):
    """Trajectories by step: got ready in it, taken by the trainer, dropped, waiting at its end.
    Without a trainer that was seen to take any, the last three are empty."""

    steps: list[int] = []
    produced: list[int] = []
    trained: list[int] = []
    dropped: list[int] = []
    waiting: list[int] = []


class Syncs(Part, frozen=True):
    """Seconds of all weight syncs: waiting for rollouts in flight, transfer, load. Null where no
    span says it."""

    seconds: float = 0.0
    waiting_s: float = 0.0
    transfer_s: float | None = None
    load_s: float | None = None


class Trajectories(Part, frozen=True):
    """All trajectories of a run. `seconds` are until one was ready to train on, `tail_seconds` the
    sum of the slowest tenth; `outcomes` are those of `Shown`."""

    count: int = 0
    outcomes: dict[Name, int] = {}
    seconds: Spread = field(default_factory=Spread)
    tail_seconds: float = 0.0
    states: dict[Name, Spread] = {}
    staleness: Spread | None = None
    aborted_requests: int = 0
    tools: list[ToolEntry] = []
    tools_left_out: int = 0
    flow: Flow = field(default_factory=Flow)
    syncs: Syncs = field(default_factory=Syncs)
    shown: list[Shown] = []
