"""The typed model of a recording: what `trace.json` and a run directory are read into.

The facts (`Run`, `Process`, `Gpu`, `Loss` and their parts) are in `trace.json` as they are here:
a renamed field, or one without a default, makes a new `FORMAT`.

Times are nanoseconds since the trace's beginning, on one clock for all ranks. Spans are columns:
numpy arrays of one length, so that a million of them cost 45 MB and need no Python objects.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.knobs import table_of
from grpo_doctor.knobs.provenance import Provenance, Setting, Settings
from grpo_doctor.trace.jsonfile import Time, Whole
from grpo_doctor_probes.record.redact import redact_command, redact_mapping, redact_text
from grpo_doctor_reports.schema.trajectories import Trajectories

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
STEP_ROLES = ("trainer", "driver")
# Nothing that is measured is larger; squares and sums of what is have no place in a float64.
_LARGEST = 1e100


class Kind(IntEnum):
    """What a row of `Spans` is. The numbers are those of the span files."""

    SPAN = 1
    STEP = 2
    INSTANT = 4
    COLLECTIVE = 5
    COLLECTIVE_WAIT = 6
    CUDA_SPAN = 7


@dataclass(frozen=True, slots=True)
class Clock:
    """`time of the trace's clock = local time + offset_ns`, known to `error_ns`."""

    offset_ns: Whole = 0
    error_ns: Whole | None = None
    method: str = "unknown"


SAME_CLOCK = Clock(0, 0, "same clock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One recorded process. `index` is its place in `Trace.processes`; `pid` that of the file."""

    index: int = 0
    pid: Whole
    os_pid: Whole = 0
    host: str = "unknown"
    rank: Whole
    role: str = "trainer"  # see `carries_steps`
    state: str = "finished"  # finished: ended in order; open: killed or still running; missing
    local_rank: Whole | None = None
    start_ns: Time | None = None
    end_ns: Time | None = None  # orderly end, or the last thing seen
    clock: Clock = field(default_factory=Clock)

    @property
    def carries_steps(self) -> bool:
        """Whether tables and rules are over it: `trainer`, a rank, or `driver`, which has the steps
        of a job whose work others do. Those are `actor`, `reward`, `rollout`...; `worker` is what
        a recorded process forked, `job` a launcher.
        """
        return self.role in STEP_ROLES


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU or MIG instance that was sampled."""

    uuid: str
    name: str = "GPU"
    index: Whole = 0
    host: str = "unknown"
    memory_total_bytes: Whole = 0
    mig: str | None = None
    visible: bool = True
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spans:
    """Columns of one length n, ordered by process, then start, then longest first.

    `name` indexes `Trace.names`, `args` indexes `Trace.args` (-1: none). `value` is the step
    number of a STEP, the sequence number of a collective, milliseconds of a CUDA_SPAN. An `open`
    span never ended: its `end_ns` is the last moment at which its process was seen.
    """

    kind: NDArray[np.uint8]
    process: NDArray[np.int32]
    thread: NDArray[np.int32]
    depth: NDArray[np.int16]
    name: NDArray[np.int32]
    args: NDArray[np.int32]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    value: NDArray[np.float64]
    open: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.start_ns)

    def of_process(self, index: int) -> slice:
        """Return the rows of one process, by its index."""
        # Of the column's own type: for others the whole column would be converted, rank by rank.
        edges = np.searchsorted(self.process, np.array([index, index + 1], self.process.dtype))
        return slice(int(edges[0]), int(edges[1]))

    def select(self, rows: NDArray[np.bool_] | NDArray[np.intp] | slice) -> Spans:
        """Return the same columns at some rows: a mask of length n, row numbers, or a slice."""
        return Spans(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class Series:
    """A sampled number over time, such as one GPU's power. `values` is NaN where unknown.

    `scope` is `gpu`, `host`, `rank` or `counter` (recorded inside a rank); `gpu` and `rank` say
    which one. Between samples the last value holds.
    """

    name: str
    unit: str
    scope: str
    host: str
    t_ns: NDArray[np.int64]
    values: NDArray[np.float64]
    gpu: str | None = None
    rank: int | None = None
    pid: int | None = None

    def __post_init__(self) -> None:
        if (too_large := np.abs(self.values) > _LARGEST).any():
            object.__setattr__(self, "values", np.where(too_large, np.nan, self.values))

    @property
    def of_joined_server(self) -> bool:
        """A server that joined the run said it; else the run asked the server, and has no pid."""
        return self.scope == "server" and self.pid is not None


@dataclass(frozen=True, slots=True)
class Metrics:
    """Training metrics: `values[name][i]` belongs to `steps[i]`; NaN where a step lacks one.

    `absent[name][i]` distinguishes that from a NaN that the job reported: true if the step had no
    such metric. A name without an entry is absent nowhere. What is beyond `_LARGEST` is infinite.
    """

    steps: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]
    absent: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        infinite = {
            name: np.where(too_large, np.copysign(np.inf, values), values)
            for name, values in self.values.items()
            if (too_large := np.abs(values) > _LARGEST).any()
        }
        object.__setattr__(self, "values", {**self.values, **infinite})


@dataclass(frozen=True, slots=True)
class Loss:
    """What a recording lacks. The report shows all of it."""

    dropped_events: Whole = 0
    missing_ranks: tuple[Whole, ...] = ()
    truncated: bool = False
    notes: tuple[str, ...] = ()

    @property
    def any(self) -> bool:
        """Whether anything was lost."""
        return bool(self.dropped_events or self.missing_ranks or self.truncated or self.notes)


@dataclass(frozen=True, slots=True)
class Exit:
    """How the job ended: `finished failed interrupted killed hung running unknown`."""

    state: str = "unknown"
    code: Whole | None = None
    signal: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What a trace was made from that grpo-doctor did not record, such as `a verl console log`.

    `limits` are sentences: what such a file does not contain. `phases` are those that it times,
    where it times some. Where it has `durations_only` the spans lie end to end within their step,
    in the order in which the framework works, and only their lengths are true. `fatal` is the line
    that says why the job failed.
    """

    what: str
    limits: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    durations_only: bool = False
    fatal: str = ""


@dataclass(frozen=True, slots=True)
class RolloutServer:
    """A server that joined the run, as it was started; `pid` is that of its series."""

    host: str = "unknown"
    pid: Whole = 0
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "command", tuple(redact_command(self.command)))


@dataclass(frozen=True, slots=True)
class Uncaught:
    """An error that ended a Python of the job; `rank` is None where it had none. `at_ns` is of its
    host's clock."""

    text: str
    pid: int = 0
    rank: int | None = None
    host: str = ""
    at_ns: int = 0


@dataclass(frozen=True, slots=True)
class Unhooked:
    """A process that the hooks did not get into; why and what to do, without a full stop."""

    reason: str
    remedy: str
    pid: int = 0
    rank: int | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """Facts of the run. `config` is what the job reported, under its framework's own names;
    `knobs` are those settings, or else those of its command, under canonical names: read them
    through `facts` and `setting`, which say whether a value is a fact. `notes` are worth knowing
    and no loss. `libraries` are known ones that a job without ranks has loaded. `origin` is None
    for what grpo-doctor recorded itself."""

    id: str = ""
    command: tuple[str, ...] = ()
    framework: str = "unknown"
    framework_version: str | None = None
    world_size: Whole = 0
    started_unix_ns: Whole = 0
    duration_ns: Time = 0
    notes: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    exit: Exit = field(default_factory=Exit)
    origin: Origin | None = None
    uncaught: tuple[Uncaught, ...] = ()
    unhooked: tuple[Unhooked, ...] = ()
    ended: tuple[str, ...] = ()  # who ended first and who followed, of a run that failed
    servers: tuple[RolloutServer, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    knobs: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Hide secrets, whatever wrote the recording: no reader and no renderer has to."""
        set_field = functools.partial(object.__setattr__, self)
        set_field("command", tuple(redact_command(self.command)))
        set_field("config", redact_mapping(self.config))
        set_field("knobs", redact_mapping(self.knobs))
        set_field("notes", tuple(map(redact_text, self.notes)))

    @property
    def settings(self) -> Settings:
        """The settings, each with where its value comes from."""
        provenance = Provenance.READ if self.config else Provenance.GIVEN
        table = table_of(self.framework, self.knobs)
        return Settings(table, self.framework_version, self.knobs, provenance)

    @property
    def facts(self) -> dict[str, Any]:
        """The settings that were given or read and have an effect, by canonical name."""
        return self.settings.facts

    def setting(self, knob: str) -> Setting:
        """What holds for a setting: a fact, else the default of this version, marked as such."""
        return self.settings[knob]

    @property
    def failed(self) -> bool:
        """Whether the job ended with an error, or is one of a known framework and was killed."""
        known = self.framework != "unknown"
        return self.exit.state == "failed" or (known and self.exit.state == "killed")


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole recording. `source` is the file or folder that it came from."""

    source: str
    run: Run
    processes: tuple[Process, ...]
    gpus: tuple[Gpu, ...]
    names: tuple[str, ...]
    args: tuple[Mapping[str, Any], ...]
    spans: Spans
    series: tuple[Series, ...]
    metrics: Metrics
    loss: Loss
    trajectories: Trajectories | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that recorded anything, ascending."""
        return tuple(sorted({p.rank for p in self.processes if p.carries_steps}))

    def server_of(self, series: Series) -> Process | None:
        """Return the joined server that said a series, if the trace holds that process."""
        if not series.of_joined_server:
            return None
        own = (p for p in self.processes if (p.host, p.os_pid) == (series.host, series.pid))
        return next(own, None)

    def frame(self) -> pd.DataFrame:
        """Return the spans as a pandas DataFrame, for notebooks: one row each.

        Columns: rank, kind (span, step, collective ...), name, start_ns and end_ns (since the trace
        began), depth, thread, value, open (it never ended).
        """
        import pandas as pd  # noqa: PLC0415 - 0.4 s of import that `report` does not need

        spans = self.spans
        ranks = np.array([p.rank for p in self.processes], dtype=np.int64)
        names = pd.Categorical.from_codes(spans.name.tolist(), categories=pd.Index(self.names))
        return pd.DataFrame(
            {
                "rank": ranks[spans.process] if len(spans) else ranks[:0],
                "kind": [Kind(k).name.lower() for k in spans.kind],
                "name": names,
                "start_ns": spans.start_ns,
                "end_ns": spans.end_ns,
                "depth": spans.depth,
                "thread": spans.thread,
                "value": spans.value,
                "open": spans.open,
            }
        )
