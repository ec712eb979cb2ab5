"""What Ray's cluster reports of itself, in words: resources, actors that died, what is pending, and
tasks that have not ended. Pure.
"""

from __future__ import annotations

from grpo_doctor.hang.model.view import JobView
from grpo_doctor.hang.wording import seconds_text
from grpo_doctor_probes.evidence import RayFact

_WHY = {
    "WORKER_DIED": "its process ended unexpectedly",
    "NODE_DIED": "its node died",
    "OWNER_DIED": "the process that started it died",
    "OUT_OF_MEMORY": "Ray's memory monitor killed it",
}
PENDING = "PENDING_NODE_ASSIGNMENT"
_STATES = {
    "PENDING_ARGS_AVAIL": "waits for the results of other tasks",
    "PENDING_OBJ_STORE_MEM_AVAIL": "waits for memory in the object store",
    "PENDING_ARGS_FETCH": "waits for its arguments to be copied to its node",
    "GETTING_AND_PINNING_ARGS": "waits for its arguments to be copied to its node",
    "PENDING_ACTOR_TASK_ARGS_FETCH": "waits for its arguments to be copied to its node",
    "PENDING_ACTOR_TASK_ORDERING_OR_CONCURRENCY": "waits for its turn in the actor",
    "SUBMITTED_TO_WORKER": "waits for its turn in the actor",
}


def of_kind(view: JobView, kind: str) -> tuple[RayFact, ...]:
    """Return the facts of one kind."""
    return tuple(fact for fact in view.evidence.ray if fact.kind == kind)


def lacking(view: JobView, fact: RayFact) -> tuple[str, ...]:
    """Return resources of which all nodes together have fewer than it wants; of alike tasks, which
    may run one after the other, than each wants.
    """
    amounts = _total(view)
    if amounts is None:
        return ()
    count = 1 if fact.kind == "task" else fact.count
    return tuple(n for n, wanted in fact.wants.items() if wanted * count > amounts.get(n, 0.0))


def _total(view: JobView) -> dict[str, float] | None:
    """Return the resources of all nodes; None where the cluster was not asked."""
    return next((row.wants for row in of_kind(view, "has")), None)


def text(view: JobView, fact: RayFact) -> str:
    """Return a fact as a clause: `Ray's actor RolloutActor (pid 7, node-a) died 70 s ago`."""
    if fact.kind == "has":
        return f"Ray's cluster has {_amounts(fact.wants)}"
    if fact.kind == "died":
        ago = f" {seconds_text(fact.age_s)} ago" if fact.age_s is not None else ""
        where = ", ".join(filter(None, (f"pid {fact.pid}" if fact.pid else "", fact.node)))
        place = f" ({where})" if where else ""
        return f"Ray's {fact.what}{place} died{ago}: {_WHY.get(fact.reason, fact.reason)}"
    if fact.kind == "task":
        return f"Ray's task {fact.what} {_state(view, fact)}"
    return f"a {fact.what} of Ray is pending: {_wanted(view, fact)}"


def awaited(view: JobView) -> RayFact | None:
    """Return the task that the others wait for, as Ray has it; None where it reports none.

    One that can't start, else the oldest of those that have started no other.
    """
    rows = of_kind(view, "task") or of_kind(view, "pending")
    first = [fact for fact in rows if lacking(view, fact)]
    return max(first or rows, key=lambda fact: fact.age_s or 0.0, default=None)


def _state(view: JobView, fact: RayFact) -> str:
    age = f" for {seconds_text(fact.age_s)}" if fact.age_s is not None else ""
    if fact.reason == PENDING:
        return f"has been pending{age}: {_wanted(view, fact)}"
    if fact.reason in _STATES:
        return f"{_STATES[fact.reason]}{f', {age[5:]} so far' if age else ''}"
    where = ", ".join(filter(None, (f"pid {fact.pid}" if fact.pid else "", fact.node)))
    return f"has run{age}{f' ({where})' if where else ''}"


def _wanted(view: JobView, fact: RayFact) -> str:
    many = f"{fact.count} times " if fact.count > 1 else ""
    amounts, short = _total(view) or {}, lacking(view, fact)
    has = ", ".join(f"{_number(amounts.get(name, 0.0))} {name}" for name in short)
    why = f", and the cluster has {has}" if short else ", which is not free on any node now"
    return f"it wants {many}{_amounts(fact.wants)}{why}"


def _amounts(wants: dict[str, float]) -> str:
    return " + ".join(f"{_number(n)} {name}" for name, n in wants.items()) or "nothing"


def _number(amount: float) -> str:
    return f"{amount:.10g}"
