"""A rollout engine as the rank that waits for it needs it: processes, counters, last words.

vLLM's parts are an HTTP front (or the trainer itself), one core or several, and a core's
tensor-parallel workers; each is the parent of the next."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor.hang.model.process import ray_code
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.waits import Graph, asks_engine
from grpo_doctor.hang.verdict import Item
from grpo_doctor_probes.evidence import EngineLook


@dataclass(frozen=True, slots=True)
class Counted:
    """What /metrics says: the last answer, and what grew since the first, `seconds` before.

    `made`, `preempted`: tokens made and requests thrown out of the cache meanwhile; `made` is None
    where the engine does not count its tokens. `cache`: the share of its cache in use.
    """

    seconds: float
    made: float | None
    preempted: float
    running: float
    queued: float
    cache: float | None = None
    asleep: bool = False
    paused: bool = False  # by its own answer
    filled: bool = False  # other cache in use than at the first answer

    @property
    def asked(self) -> bool:
        """Return whether it has anything to do."""
        return self.running + self.queued > 0

    @property
    def counts_tokens(self) -> bool:
        """Return whether it is certain that no token came out where none was seen."""
        return self.made is not None

    @property
    def makes_progress(self) -> bool:
        """Return whether tokens came out, as far as that can be seen."""
        return self.filled if self.made is None else self.made > 0

    def text(self) -> str:
        """`0 tokens in 1.6 s, 1 request runs, 3 wait, cache 98% full`."""
        made = "" if self.made is None else f"{self.made:.0f} tokens in {self.seconds:.1f} s, "
        thrown = f", {self.preempted:.0f} preempted meanwhile" if self.preempted else ""
        full = "" if self.cache is None else f", cache {self.cache:.0%} full"
        return f"{made}{self.running:.0f} requests run, {self.queued:.0f} wait{full}{thrown}"


def counted(looks: Sequence[EngineLook]) -> Counted | None:
    """Compares the first and last answers of an engine's fronts; None without two of any.

    They are asked by several threads, and an engine that is busy may answer the first one last.
    """
    fronts: dict[tuple[int, str], list[tuple[int, dict[str, float]]]] = defaultdict(list)
    for look in sorted(looks, key=lambda look: look.at_ns):
        values = {  # without an engine's prefix and labels
            name.partition("{")[0].rpartition(":")[2]: value
            for name, value in (look.values or {}).items()
        }
        if "num_requests_running" in values:
            fronts[look.pid, look.url].append((look.at_ns, values))
    pairs = [(answers[0], answers[-1]) for answers in fronts.values() if len(answers) > 1]
    if not pairs:
        return None
    first = _sum([answer for (_, answer), _ in pairs])
    last = _sum([answer for _, (_, answer) in pairs])
    tokens, thrown, cache = "generation_tokens_total", "num_preemptions_total", "kv_cache_usage"
    return Counted(
        seconds=max(ended_ns - began_ns for (began_ns, _), (ended_ns, _) in pairs) / 1e9,
        made=last[tokens] - first.get(tokens, 0) if tokens in last else None,
        preempted=last.get(thrown, 0) - first.get(thrown, 0),
        running=last["num_requests_running"],
        queued=last.get("num_requests_waiting", 0),
        cache=max((answer[cache] for _, (_, answer) in pairs if cache in answer), default=None),
        asleep=last.get("asleep", 0) > 0,
        paused=last.get("paused", 0) > 0,
        filled=last.get(cache) != first.get(cache),
    )


def _sum(answers: Sequence[dict[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for values in answers:
        for name, value in values.items():
            sums[name] += value
    return dict(sums)


_DIED = re.compile(
    r"EngineDeadError|EngineCore.*(died|failed|fatal)|engine core.*died|Worker proc .*died",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"Connection refused|ConnectionRefusedError|Failed to establish a new connection"
    r"|All connection attempts failed|Cannot connect to host",
    re.IGNORECASE,
)
_UNTIL_UP = re.compile(
    r"wait_(for|until|till)_\w*(server|engine|vllm|sglang|ready|health|up$)|check_server",
    re.IGNORECASE,
)
_FRESH_S = 60.0  # of a log whose last lines tell of now
_IDLE = "_process_input_queue"
_STARTS = frozenset({"load", "compile", "download", "init"})
_MOST_WORDS = 3
_ASKS = ("rollout", "sync")
_OTHERS = ("reward", "dataload")  # a judge is an engine as well, and its trouble is the reward's


@dataclass(frozen=True, slots=True)
class RolloutEngine:
    """The engine of one rank. `parts`: front first. `last_words`: what logs say of its death."""

    parts: tuple[Process, ...]
    counted: Counted | None = None
    last_words: tuple[Item, ...] = ()
    refuses: bool = False  # its /health answers, and says that it is not healthy
    again: bool = False  # the rank has no request open, and sleeps before its next attempt

    @property
    def cannot_run(self) -> tuple[Process, ...]:
        """Its processes that may not run, the one that does the work first."""
        halted = [proc for proc in self.parts if proc.activity.kind in ("stopped", "frozen")]
        return tuple(reversed(halted))

    @property
    def dead(self) -> tuple[Process, ...]:
        """Its processes that have ended, the front first."""
        return tuple(proc for proc in self.parts if proc.activity.kind == "gone")

    @property
    def is_dead(self) -> bool:
        """Return whether tokens will never come: by its processes, else by what it says."""
        computes = any(p.member.role == "engine-worker" or _computes(p) for p in self.parts)
        return bool(self.dead) or (not computes and (self.refuses or bool(self.last_words)))

    @property
    def works(self) -> bool:
        """Return whether any of its processes makes progress, or burns a core."""
        return any(proc.activity.progresses for proc in self.parts)

    @property
    def takes_no_step(self) -> bool:
        """Return whether vLLM's core waits for something to do, which it does with requests only if
        paused. Tokens that came out since the first sample speak against it.
        """
        waits = any(frame.function.endswith(_IDLE) for frame in self.core.place.frames)
        made = self.counted is not None and self.counted.makes_progress
        return waits and not made and not self.works

    @property
    def starts(self) -> bool:
        """Return whether it is still on its way up, by its processes' stacks."""
        return self.counted is None and any(
            _STARTS & set(proc.place.purposes) for proc in self.parts if not proc.cannot_run
        )

    @property
    def core(self) -> Process:
        """The process to name: the one that computes, of several the first."""
        return next((proc for proc in self.parts if _computes(proc)), self.parts[0])


def _computes(proc: Process) -> bool:
    """Return whether it is a core: by its role, or by the name that vLLM gives to its own. Ray's
    actor around an engine is none while no thread of it has a task.
    """
    if proc.member.name.startswith("VLLM::Engine"):
        return True
    threads = proc.python_threads
    idle = ray_code.in_loop(proc.place.frames) and not any(map(ray_code.carries, threads))
    return proc.member.role == "engine" and not idle


def engine_of(view: JobView, graph: Graph, proc: Process) -> RolloutEngine | None:
    """The engine that a rank waits for; None where it waits for something else."""
    if proc.phase in _OTHERS:
        return None
    candidates = view.engine_parts()
    fronts = _fronts(proc, candidates)
    if proc.phase not in _ASKS:
        fronts = tuple(process for process in fronts if _is_engine(view, process))
    again = not fronts and _between_attempts(proc) and proc.phase in _ASKS
    if again:
        fronts = tuple(process for process in candidates if process.member.role == "server")
    elif not fronts:
        if not asks_engine(proc):
            return None
        reached = graph.reach.get(proc.node, frozenset())
        fronts = tuple(process for process in candidates if process.node in reached)
    # An agent asks servers of rewards or data in its rollout as well.
    fronts = tuple(
        front
        for front in fronts
        if front.phase not in _OTHERS or front.cannot_run or _is_engine(view, front)
    )
    parts = _with_descendants(fronts, candidates)
    if not parts:
        return None
    looks = [look for process in parts for look in view.engine_looks(process.pid)]
    answers = [look.values for look in looks if look.values and "healthy" in look.values]
    return RolloutEngine(
        parts=parts,
        counted=counted(looks),
        last_words=_last_words(view, proc, {process.pid for process in parts}),
        again=again,
        refuses=bool(answers) and answers[-1]["healthy"] == 0,
    )


def _is_engine(view: JobView, proc: Process) -> bool:
    """Whether a server is one of an engine, and not any process that ranks are connected to."""
    if proc.member.role != "server":
        return True
    below = any(child.member.role == "engine" for child in view.children(proc.pid))
    return below or counted(view.engine_looks(proc.pid)) is not None


def _fronts(proc: Process, parts: Sequence[Process]) -> tuple[Process, ...]:
    peers = {
        pid
        for row in proc.blocked
        if row.kind in ("socket-receive", "poll", "pipe-read")
        for pid in row.peers
    }
    return tuple(process for process in parts if process.pid in peers)


def _with_descendants(fronts: Sequence[Process], parts: Sequence[Process]) -> tuple[Process, ...]:
    family = {proc.pid: proc for proc in fronts}
    while below := [p for p in parts if p.pid not in family and p.member.parent in family]:
        family |= {proc.pid: proc for proc in below}
    depth = {"engine": 1, "engine-worker": 2}
    return tuple(sorted(family.values(), key=lambda proc: depth.get(proc.member.role, 0)))


def awaits_server(proc: Process) -> bool:
    """Return whether it waits, by its functions' names, until a server is up."""
    return _between_attempts(proc) and any(
        _UNTIL_UP.search(frame.function) for frame in proc.place.frames
    )


def _between_attempts(proc: Process) -> bool:
    sleeps = proc.hold is not None and proc.hold.kind in ("sleep", "socket-connect")
    return sleeps or proc.place.call in ("sleep", "http", "poll")


def refusals(view: JobView, proc: Process) -> tuple[Item, ...]:
    """Return what logs say of a server that this rank asks repeatedly while no process listens."""
    if not {"generate", "weight-sync"} & set(proc.place.purposes):
        return ()
    if not _between_attempts(proc) or view.engine_parts():
        return ()
    fresh = [log for log in view.evidence.logs if log.written_s_ago <= _FRESH_S]
    lines = [line for log in fresh for line in log.lines if _REFUSED.search(line)]
    return tuple(Item("log", proc.rank, line) for line in lines[-_MOST_WORDS:])


def _last_words(view: JobView, proc: Process, pids: set[int]) -> tuple[Item, ...]:
    ranks = {process.pid for process in view.by_rank.values()} - {proc.pid}
    lines = [
        line
        for log in view.evidence.logs
        if log.pid in pids or log.pid not in ranks
        for line in log.lines
        if _DIED.search(line)
    ]
    return tuple(Item("log", proc.rank, line) for line in lines[-_MOST_WORDS:])
