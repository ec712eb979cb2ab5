"""What rollout engines, within the ranks or as servers, report of themselves, and their flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.analysis.sampled import held, max_over, mean_over
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.findings.rollout_engine import MEANS, mean_of, peak_of, per_rollout
from grpo_doctor.findings.rule import Answer, Evidence, Fix, NotApplicable, Passed
from grpo_doctor.findings.signals import Signal, all_of, any_of, sampled
from grpo_doctor.findings.view import RunView
from grpo_doctor.knobs.values import spelled
from grpo_doctor.launches.launcher import unwrap
from grpo_doctor.launches.programs import recognize
from grpo_doctor.launches.words import from_arguments
from grpo_doctor.trace.intervals import overlaps
from grpo_doctor.trace.model import RolloutServer, Series
from grpo_doctor.whatif import Withheld

RUNNING, WAITING = "server.requests_running", "server.requests_waiting"
CACHE, PREEMPTIONS = "server.kv_cache", "server.preemptions"
TOKENS = "server.generated_tokens"
_HOW = "start the server with `grpo-doctor run --join RUN`; SGLang also takes --enable-metrics"
_ENGINE_HOW = "record with `grpo-doctor run`; vLLM 0.12 and newer is counted"
_PARALLEL = ("tensor", "pipeline", "data")
# What `engines` reads where it was recorded.
ENGINES = ("engine/*", RUNNING, WAITING, CACHE, PREEMPTIONS, TOKENS)
_NAMES = {
    "vllm": "`vllm serve`",
    "sglang": "SGLang",
    "trl server": "`trl vllm-serve`",
    "ms-swift server": "`swift rollout`",
}

WITHIN_RANKS = NotApplicable("the rollout engine runs within the ranks")


def engine_within_ranks(view: RunView) -> bool:
    """Return whether the run itself says so: a server that joined it is then for something else."""
    mode = view.trace.run.setting("vllm.mode")
    return bool(mode.provenance.is_fact and mode.value == "colocate")


def server_signal(name: str) -> Signal:
    """Return a series of rollout servers, and how to get it."""
    return sampled(name, _HOW)


def engine_or_server(counter: str, *names: str) -> Signal:
    """A counter of an engine within the ranks, or all of these series of a rollout server."""
    series = ", ".join(f"`{name}`" for name in names)
    return any_of(
        f"`{counter}` ({_ENGINE_HOW}), or {series} of a rollout server: {_HOW}",
        sampled(counter, ""),
        all_of(*(server_signal(name) for name in names)),
    )


@dataclass(frozen=True, slots=True)
class Program:
    """What a server was started as: its table of `grpo_doctor.knobs`, and what its command sets."""

    table: str
    version: str | None
    settings: dict[str, Any]
    options: frozenset[str]

    @property
    def name(self) -> str:
        """As a user calls it."""
        return _NAMES[self.table]

    @property
    def handed_over(self) -> bool:
        """Whether it is TRL's command of 1.16 or later, which is vLLM's own."""
        versioned = self.table == "trl server" and self.version is not None
        return versioned and knobs.spell(self.table, self.version, "vllm.server_port", 1) is None

    def shown(self, knob: str) -> Any:
        """Return its value, a default marked as one."""
        value = self.value(knob)
        return value if knob in self.settings or value is None else f"{spelled(value)} (default)"

    def value(self, knob: str) -> Any:
        """What was set, else this version's default; None where neither is known."""
        setting = self.settings.get(knob)
        return knobs.default(self.table, self.version, knob) if setting is None else setting


@dataclass(frozen=True, slots=True)
class Load:
    """One engine over the used steps; a server without a `pid` is all that the run asked, as one.

    Means are over time, of an engine that the ranks recorded (`counted`) over its own steps, and
    its `preemptions` are per rollout; else they are per step, and `tokens` per second. What was
    not said is None.
    """

    host: str
    pid: int | None
    program: Program | None
    running: float
    waiting: float
    running_peak: float
    waiting_peak: float
    cache_peak_pct: float | None
    preemptions: float | None
    tokens: float | None = None
    counted: bool = False

    @property
    def name(self) -> str:
        """Which engine: a server by its program, host and process."""
        if self.counted:
            return "the engine"
        if self.pid is None:
            return "the rollout server"
        program = self.program.name if self.program else "the server"
        return f"{program} on {self.host}, pid {self.pid}"

    @property
    def queued_share(self) -> float:
        """The share of its requests that were waiting."""
        requests = self.running + self.waiting
        return self.waiting / requests if requests > 0 else 0.0

    @property
    def preempted_share(self) -> float:
        """Preemptions per request; the most that ran and waited at once count as all."""
        return (self.preemptions or 0.0) / max(1.0, self.running_peak + self.waiting_peak)

    @property
    def period(self) -> str:
        """What `preemptions` are counted over."""
        return "rollout" if self.counted else "step"

    def evidence(self, *names: str) -> tuple[Evidence, ...]:
        """Return what it said: `requests`, `cache`, `preemptions`."""
        source = MEANS if self.counted else f"/metrics of {self.name}, mean over the steps"
        at_once, filled = RUNNING, CACHE
        if self.counted:
            at_once, filled = "counter engine/running_requests_peak", _COUNTED_CACHE
        rows = {
            "requests": [
                Evidence("requests running", round(self.running, 1), "", source),
                Evidence("requests waiting", round(self.waiting, 1), "", source),
                Evidence("waiting requests", round(100 * self.queued_share, 1), "%", source),
                Evidence("most requests at once", self.running_peak, "", at_once),
            ],
            "cache": [Evidence("peak cache usage", self.cache_peak_pct, "%", filled)],
            "preemptions": [
                Evidence(f"preemptions per {self.period}", self.preemptions, "", source)
            ],
        }
        return tuple(row for name in names for row in rows[name])

    def spelled(self, view: RunView, knob: str, value: Any) -> str | None:
        """Return a setting as the server's own command takes it; None where that is not known."""
        if self.program is None:
            return None
        table, version = self.program.table, self.program.version
        text = knobs.spell(table, version, knob, value)
        if text is None and self.program.handed_over:
            return knobs.spell("vllm", view.trace.run.versions.get("vllm"), knob, value)
        return text

    def setting(
        self, view: RunView, knob: str, value: Any, *, reason: str, risk: str
    ) -> Fix | None:
        """Return a fix in the server's own flags; None where those are not known.

        `reason` says why no gain is predicted.
        """
        text = self.spelled(view, knob, value)
        if self.program is None or text is None:
            return None
        where = f"for {self.program.name}"
        return Fix(
            knob,
            self.program.shown(knob),
            value,
            f"{where}: {text}",
            None,
            "same-math",
            risk,
            typed=text,
            where=where,
            change=Withheld(reason),
        )


_COUNTED_CACHE = "counter engine/kv_cache_peak_pct"


def engines(view: RunView) -> tuple[Load, ...]:
    """The engine that the ranks counted for, if they did, and the servers, unless the engine is
    within the ranks: a server that joined is then for something else."""
    counted = _counted(view)
    servers = () if engine_within_ranks(view) else loads(view)
    return servers if counted is None else (counted, *servers)


def unheard(view: RunView) -> Answer:
    """Return the answer where no engine is left to judge."""
    if engine_within_ranks(view):
        return WITHIN_RANKS
    return Passed("no engine reported its number of requests during the steps")


def _counted(view: RunView) -> Load | None:
    cache = per_rollout(view, "kv_cache_peak_pct")
    if not len(cache) and not len(per_rollout(view, "running_requests_peak")):
        return None
    return Load(
        host="",
        pid=None,
        program=None,
        running=mean_of(view, "running_requests_mean") or 0.0,
        waiting=mean_of(view, "waiting_requests_mean") or 0.0,
        running_peak=peak_of(view, "running_requests_peak"),
        waiting_peak=peak_of(view, "waiting_requests_peak"),
        cache_peak_pct=float(cache.max()) if len(cache) else None,
        preemptions=mean_of(view, "preemptions"),
        counted=True,
    )


def loads(view: RunView) -> tuple[Load, ...]:
    """Return each server that said how many requests it had during the used steps."""
    started = {(server.host, server.pid): server for server in view.trace.run.servers}
    candidates = (
        _load(view, series, started.get((series.host, series.pid or 0)))
        for series in view.series(RUNNING)
    )
    return tuple(load for load in candidates if load is not None)


def series_of_server(view: RunView, name: str, host: str, pid: int | None) -> Series | None:
    """Return what one server said under a name; None where it said nothing."""
    return next((s for s in view.series(name) if (s.host, s.pid) == (host, pid)), None)


def joined_engines(view: RunView) -> tuple[int, int] | None:
    """Return the GPUs of an engine, and of all, by the commands of the servers that joined; None
    where none did, or they are not known or not alike."""
    sizes = []
    for server in view.trace.run.servers:
        program = _program(view, server)
        if program is None:
            return None
        parts = (program.value(f"vllm.{part}_parallel_size") or 1 for part in _PARALLEL)
        tensor, stages, replicas = map(int, parts)
        sizes.append((tensor * stages, tensor * stages * replicas))
    alike = len({size for size, _ in sizes}) == 1
    return (sizes[0][0], sum(total for _, total in sizes)) if alike else None


def _load(view: RunView, running: Series, server: RolloutServer | None) -> Load | None:
    windows = view.analysis.used_windows
    mean = mean_over(running, windows)
    if mean is None:
        return None

    waiting, cache, preempted, tokens = (
        series_of_server(view, name, running.host, running.pid)
        for name in (WAITING, CACHE, PREEMPTIONS, TOKENS)
    )
    return Load(
        host=running.host,
        pid=running.pid,
        program=None if server is None else _program(view, server),
        running=mean,
        waiting=(mean_over(waiting, windows) if waiting else None) or 0.0,
        running_peak=max_over(running, windows) or 0.0,
        waiting_peak=(max_over(waiting, windows) if waiting else None) or 0.0,
        cache_peak_pct=max_over(cache, windows) if cache else None,
        preemptions=_per_step(view, preempted),
        tokens=mean_over(tokens, windows) if tokens else None,
    )


def _per_step(view: RunView, rate: Series | None) -> float | None:
    """Return what a rate per second amounts to in an average step."""
    steps = len(view.analysis.steps.used)
    if rate is None or not steps:
        return None
    stretches, values = held(rate)
    pieces = overlaps(stretches, view.analysis.used_windows)
    if not len(pieces.left):
        return None
    return float((values[pieces.left] * pieces.length_ns).sum() / NS_PER_S / steps)


def _program(view: RunView, server: RolloutServer) -> Program | None:
    started = unwrap(from_arguments(server.command))
    program = recognize(started) if started else None
    if program is None or program.table not in _NAMES:
        return None
    run = view.trace.run
    versions = {**run.versions, run.framework: run.framework_version}
    table = program.table
    version = versions.get(table.removesuffix(" server"))
    words = [word.text for word in program.words]
    options = frozenset(
        word[2:].partition("=")[0].replace("-", "_") for word in words if word.startswith("--")
    )
    return Program(table, version, knobs.from_command(table, version, words), options)
