"""What holds the job up is on a host that was not looked at, or hosts were started differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.missing import JOINING_S, joined_for_s
from grpo_doctor.hang.causes.wording import stack_item
from grpo_doctor.hang.model.hosts import commands, hosts_of
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.multihost.moments import is_old
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import ranks_text
from grpo_doctor_probes.evidence import Placement

_MOST_HOSTS = 4


def propose(case: Case) -> Iterator[Candidate]:
    """Ranks on other hosts, waited for at the start of a job or in the middle of it."""
    scene = case.scene
    unseen = tuple(sorted(scene.elsewhere))
    if not scene.by_rank:
        return
    joining = [one for one in scene.by_rank.values() if one.place.call == "store" or one.at_store]
    differing = tuple(_told_differently(scene, joining)) if joining else ()
    yield from differing
    if not unseen or differing:  # then it is no wonder that ranks are missing
        return
    if any(one.place.call == "store" for one in joining):
        yield _not_come(scene, unseen, joining)
    else:
        yield _awaited(scene, unseen)


def _awaited(scene: Scene, unseen: tuple[int, ...]) -> Candidate:
    """Everybody here waits: whoever holds the job up is elsewhere, and nothing here tells why."""
    waiting = tuple(rank for rank, one in scene.by_rank.items() if one.waits)
    whole = (
        f"{_seen_ranks(scene)} {'wait' if waiting else 'may wait'}{_in(scene)} for "
        f"{ranks_text(unseen)}, {_not_here(scene, unseen)}"
    )
    return Candidate(
        cause="unknown",
        culprits=unseen,
        reason="is not on this host",
        whole=whole,
        evidence=_counted(scene),
        sink=Sink.NOTHING,
        liveness="computing",  # on its own host it may write a checkpoint: not seen here
        fixes=(_LOOK_AT_ALL,),
        confirm=commands(scene.evidence.job),
    )


def _not_come(scene: Scene, unseen: tuple[int, ...], joining: list[Actor]) -> Candidate:
    """The job waits at its start for ranks of another host."""
    return Candidate(
        cause="rank-missing",
        culprits=unseen,
        reason="has not come to the rendezvous",
        whole=f"{_seen_ranks(scene)} wait at the rendezvous for {ranks_text(unseen)}, "
        f"{_not_here(scene, unseen)}",
        evidence=(*_counted(scene), *(stack_item(one) for one in joining[:2])),
        sink=Sink.KILLED,  # before that of `missing`, which knows nothing of other hosts
        liveness="never-wakes" if joined_for_s(scene) > JOINING_S else "unseen",
        phase="init",
        still_s=max((one.motion.still_s or 0.0 for one in joining), default=None),
        fixes=(
            Fix(
                "Start the missing ranks, or correct WORLD_SIZE, MASTER_ADDR and the node number "
                "where they run; look whether their host reaches the rendezvous address."
            ),
            _LOOK_AT_ALL,
        ),
        confirm=commands(scene.evidence.job),
    )


_LOOK_AT_ALL = Fix(
    "Look at all hosts at the same time: the first command of how to confirm keeps a bundle of "
    "each in a folder that all of them see, the second joins the bundles to one verdict."
)


def _told_differently(scene: Scene, joining: list[Actor]) -> Iterator[Candidate]:
    """Hosts that were started with other world sizes, or as the same node."""
    job = scene.evidence.job
    sizes: dict[int, list[Placement]] = {}
    for place in job.placements:
        if place.world_size:
            sizes.setdefault(place.world_size, []).append(place)
    if len(sizes) > 1:
        said = "; ".join(
            f"{size} on {_named([place.host for place in places])}"
            for size, places in sorted(sizes.items())
        )
        fewest = min(sizes, key=lambda size: (len(sizes[size]), size))
        ranks = tuple(sorted({rank for place in sizes[fewest] for rank in place.ranks}))
        whole = f"the hosts were started with different world sizes: {said}"
        yield _started_wrongly(ranks, whole, f"WORLD_SIZE: {said}", joining)
    hosts, ranks = _claimed_twice(job.placements)
    if ranks:
        missing = tuple(job.ranks_missing) or ranks
        nowhere = f", and {ranks_text(missing)} nowhere" if job.ranks_missing else ""
        was = "was" if len(ranks) == 1 else "were"
        whole = f"{ranks_text(ranks)} {was} started twice, on {_named(hosts)}{nowhere}"
        fact = f"{ranks_text(ranks)}: processes on {_named(hosts)} at the same time"
        yield _started_wrongly(missing, whole, fact, joining)


def _claimed_twice(placements: Sequence[Placement]) -> tuple[list[str], tuple[int, ...]]:
    """Hosts that have processes of the same ranks at the same time, and these ranks."""
    claims: dict[int, list[Placement]] = {}
    for place in placements:
        for rank in place.ranks:
            claims.setdefault(rank, []).append(place)
    twice = {
        rank: places
        for rank, places in claims.items()
        if len(places) > 1
        and not is_old(min(p.taken_unix_ns for p in places), max(p.taken_unix_ns for p in places))
    }
    hosts = sorted({place.host for places in twice.values() for place in places})
    return hosts, tuple(sorted(twice))


def _started_wrongly(
    ranks: tuple[int, ...], whole: str, fact: str, joining: list[Actor]
) -> Candidate:
    return Candidate(
        cause="rank-missing",
        culprits=ranks,
        reason="was started differently from the others",
        whole=whole,
        evidence=(Item("environment", None, fact), *(stack_item(one) for one in joining[:2])),
        sink=Sink.KILLED,
        liveness="never-wakes",
        phase="init",
        still_s=max((one.motion.still_s or 0.0 for one in joining), default=None),
        fixes=(
            Fix(
                "Start all hosts with one world size (--nnodes and --nproc-per-node), and each "
                "with a node number of its own (--node-rank)."
            ),
        ),
    )


def _seen_ranks(scene: Scene) -> str:
    """Who waits: those of this host, or of all that were looked at."""
    several = len(scene.evidence.job.placements) > 1
    return "the ranks that were seen" if several else "the ranks of this host"


def _in(scene: Scene) -> str:
    operations = {one.place.operation for one in scene.by_rank.values() if one.waits} - {""}
    return f" in {operations.pop()}" if len(operations) == 1 else ""


def _not_here(scene: Scene, unseen: tuple[int, ...]) -> str:
    """`which are not on this host (probably on node2)`."""
    several = len(scene.evidence.job.placements) > 1
    where = "none of the hosts that were looked at" if several else "not on this host"
    verb = "is" if len(unseen) == 1 else "are"
    hosts = hosts_of(scene.evidence, unseen)
    probably = f" (probably on {_named(hosts)})" if hosts else ""
    on = "on " if several else ""
    return f"which {verb} {on}{where}{probably}"


def _counted(scene: Scene) -> tuple[Item, ...]:
    job = scene.evidence.job
    where = _named([place.host for place in job.placements]) if job.placements else job.host
    text = f"{len(scene.by_rank)} of {job.world_size} ranks were seen, on {where}"
    return (Item("proc", None, text),)


def _named(hosts: Sequence[str]) -> str:
    if len(hosts) <= _MOST_HOSTS:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:2])} and {len(hosts) - 2} others"
