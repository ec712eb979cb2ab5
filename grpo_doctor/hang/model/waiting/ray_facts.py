"""What a Ray cluster reports of itself, in words: what died, what is pending, and what it lacks."""

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
_BY_NAME = (("reward", "reward-blocked"), ("rollout", "rollout-engine-dead"))
_ENGINES = ("vllm", "sglang", "engine", "generat")


def of_kind(view: JobView, kind: str) -> tuple[RayFact, ...]:
    """Return the facts of one kind."""
    return tuple(fact for fact in view.evidence.ray if fact.kind == kind)


def class_of(fact: RayFact) -> str:
    """Return the class of a verdict on an actor that died, by its reason and name."""
    if fact.reason == "OUT_OF_MEMORY":
        return "oom-killed"
    name = fact.what.lower()
    engine = "rollout-engine-dead" if any(word in name for word in _ENGINES) else "rank-dead"
    return next((cause for word, cause in _BY_NAME if word in name), engine)


def lacking(view: JobView, fact: RayFact) -> tuple[str, ...]:
    """Return resources of which all nodes together have fewer than it wants."""
    total = _total(view)
    if total is None:
        return ()
    wants = {name: amount * fact.count for name, amount in fact.wants.items()}
    return tuple(name for name, amount in wants.items() if amount > total.get(name, 0.0))


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
    many = f"{fact.count} times " if fact.count > 1 else ""
    total, short = _total(view) or {}, lacking(view, fact)
    has = ", ".join(f"{_number(total.get(name, 0.0))} {name}" for name in short)
    why = f", and the cluster has {has}" if short else ", which is not free on any node now"
    return f"a {fact.what} of Ray is pending: it wants {many}{_amounts(fact.wants)}{why}"


def _amounts(wants: dict[str, float]) -> str:
    return " + ".join(f"{_number(n)} {name}" for name, n in wants.items()) or "nothing"


def _number(amount: float) -> str:
    return f"{amount:.10g}"
