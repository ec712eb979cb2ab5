"""Jobs of Ray without a rank so far: what Ray reports, and what the processes show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grpo_doctor.hang.catalogue import advice
from grpo_doctor.hang.causes.candidate import in_phase, since_start_s, stack_item, title
from grpo_doctor.hang.causes.process import JOINING_S
from grpo_doctor.hang.model.view import LIMITS, JobView, Process
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor.hang.model.waiting.tasks import fact_text, lacking, of_kind
from grpo_doctor.hang.verdict import Item, State, Verdict
from grpo_doctor.hang.wording import seconds_text, sentence
from grpo_doctor_probes.evidence import RayFact

_BY_NAME = (("reward", "reward-blocked"), ("rollout", "rollout-engine-dead"))
_ENGINES = ("vllm", "sglang", "engine", "generat")


def class_of(fact: RayFact) -> str:
    """Return the class of a verdict on an actor that died, by its reason and name."""
    if fact.reason == "OUT_OF_MEMORY":
        return "oom-killed"
    name = fact.what.lower()
    engine = "rollout-engine-dead" if any(word in name for word in _ENGINES) else "rank-dead"
    return next((cause for word, cause in _BY_NAME if word in name), engine)


_ASK_RAY = "grpo-doctor attach --ray  # with what the cluster itself reports"
_LIST = "ray status; ray list actors  # what is pending, and which resource it lacks"
_INIT = ".__init__"


def without_ranks(view: JobView) -> Verdict | None:
    """Return the verdict on a job of Ray that has no rank (yet); None for any other."""
    alive = [proc for proc in view.procs if proc.activity.kind != "gone"]
    starting = [proc for proc in alive if proc.actor.endswith(_INIT)]
    drivers = [proc for proc in tasks.drivers(view) if proc in alive]
    called = [proc for proc in alive if proc.task and proc not in starting]
    known = (*drivers, *starting, *called)
    if view.by_rank or not known:
        return None
    first, age_s = known[0], since_start_s(view, known)
    died, pending = (of_kind(view, kind) for kind in ("died", "pending"))
    if not died and not pending:
        return _starting(view, starting or called or [first], first, age_s)
    if died:
        fact = min(died, key=lambda fact: fact.age_s or 0.0)
        limit_s, waited_s = LIMITS["polls"].floor_s, fact.age_s or 0.0
    else:
        fact = max(pending, key=lambda fact: bool(lacking(view, fact)))
        limit_s, waited_s = JOINING_S, age_s
    stands = waited_s >= limit_s and not _works(view)
    soon = "" if died or stands else f"; the last process was started {seconds_text(age_s)} ago"
    waits = f"the driver ({first.name}) waits{in_phase(first)}"
    return Verdict(
        state="stuck" if stands else "slow",
        cause=class_of(fact) if died else "rank-missing",
        certainty="likely",
        phase=first.phase if died else "init",
        summary=sentence(f"{fact_text(view, fact)}; {waits}{soon}"),
        evidence=tuple(_items(view, [first])),
        fixes=advice("Ray actor" if died else "Ray resources"),
        confirm=(_LIST,),
    )


def _starting(view: JobView, procs: Sequence[Process], driver: Process, age_s: float) -> Verdict:
    first, works = procs[0], _works(view)
    # Whom a driver waits for may not be seen; an actor that has not begun to work is.
    stands = first.task.endswith(_INIT) and age_s >= LIMITS["long"].floor_s
    state: State = "healthy" if works else "stuck" if stands else "slow"
    name = first.task or first.actor
    subject = f"the Ray actor in {name} ({first.name})" if name else f"the driver ({first.name})"
    idle = "waits for a Ray result" if first.asks else "makes no visible progress"
    does = "makes progress" if works else idle
    return Verdict(
        state=state,
        cause="user-code-blocked" if state == "stuck" else "",
        certainty="possible" if state == "stuck" else "",
        phase=first.phase or "init",
        summary=sentence(
            f"the job has no rank now: {subject} {does}{in_phase(first)}; it was started "
            f"{seconds_text(age_s)} ago"
        ),
        evidence=tuple(_items(view, dict.fromkeys((*procs[:3], driver)))),
        confirm=(_LIST if view.evidence.ray else _ASK_RAY,),
    )


def _works(view: JobView) -> bool:
    own = (proc for proc in view.procs if not proc.serves_ray)
    return any(proc.activity.progresses and not proc.asks for proc in own)


def _items(view: JobView, procs: Sequence[Process] | dict[Process, None]) -> Iterator[Item]:
    yield from (Item("ray", None, fact_text(view, fact)) for fact in view.evidence.ray[:6])
    for proc in procs:
        yield Item("proc", None, title(proc))
        yield stack_item(proc)
