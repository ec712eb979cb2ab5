"""Ranks that no process is: ended, not started, started differently, or on a host not looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.description import stack_item
from grpo_doctor.hang.causes.memory import LIST_KILLS, out_of_memory, recent_oom, unassigned_kills
from grpo_doctor.hang.causes.process_state import dead
from grpo_doctor.hang.model.hosts import commands, hosts_of
from grpo_doctor.hang.model.process.progress import TICKS_PER_SECOND
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.multihost.visits import is_old
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import ranks_text, verb
from grpo_doctor_probes.evidence import Placement

JOINING_S = 120.0  # of a job over several hosts, which pull images and start one by one
JOINING_HERE_S = 5.0  # after the last process was started; and as much again as they took to start
_MOST_HOSTS = 4
_START_HERE = (
    Fix("Start the missing rank, or correct WORLD_SIZE and MASTER_ADDR where it runs."),
    Fix("If it was started, it has exited: read the first traceback in its log."),
)
_START_THERE = Fix(
    "Start the missing ranks, or correct WORLD_SIZE, MASTER_ADDR and the node number where "
    "they run. Check that their host reaches the rendezvous address."
)
_START_ALIKE = Fix(
    "Start all hosts with the same world size (--nnodes and --nproc-per-node), and each with "
    "its own node number (--node-rank)."
)
_LOOK_AT_ALL = Fix(
    'Inspect all hosts at the same time: the first command under "how to confirm" saves a '
    "bundle of each host in a shared folder, the second joins the bundles into one verdict."
)


def propose(case: Case) -> Iterator[Candidate]:
    """Missing ranks of this host, and of others, at the start of a job or in the middle of it."""
    view, missing = case.view, case.view.evidence.job.ranks_missing
    if not view.by_rank:
        return
    absent = tuple(rank for rank in missing if rank not in {*view.by_rank, *view.elsewhere})
    if absent:
        yield _absent(view, absent)
    joining = [
        proc for proc in view.by_rank.values() if proc.place.call == "store" or proc.at_store
    ]
    differing = tuple(_started_differently(view, joining)) if joining else ()
    yield from differing
    if view.elsewhere and not differing:  # else it is no wonder that ranks are missing
        yield _elsewhere(view, tuple(sorted(view.elsewhere)), joining)


def _absent(view: JobView, ranks: tuple[int, ...]) -> Candidate:
    """No process of this host is one of these, and no other host can have them."""
    size = view.evidence.job.world_size
    fact = Item("proc", None, f"{len(view.by_rank)} of {size} ranks are on this host")
    joining = [proc for proc in view.by_rank.values() if proc.place.call == "store"]
    if joining:
        never = joined_for_s(view) > _joining_s(view, ranks)
        absent = _not_joined(ranks, joining, "has not joined the rendezvous", fact, never=never)
        return replace(
            absent,
            sink=Sink.PROCESS,
            fixes=_START_HERE,
            confirm=("pgrep -af python  # on every host: is the missing rank's process there?",),
        )
    reason = "is dead: its process is gone"
    if any(proc.waits for proc in view.by_rank.values()):
        oom = recent_oom(view)
        if oom:
            return out_of_memory(ranks, (fact, *oom))
        maybe = unassigned_kills(view)
        candidate = dead(ranks, reason, (fact, *maybe), Sink.ENDED)
        return replace(candidate, confirm=(LIST_KILLS,)) if maybe else candidate
    # A rank that nobody waits for may have ended in order.
    return replace(dead(ranks, reason, (fact,), Sink.NOTHING), liveness="unseen")


def joined_for_s(view: JobView) -> float:
    """Since the last of the ranks that are here was started, or for how long they have waited.

    Waiting at the store is done in slices of some seconds, after each of which the thread runs.
    """
    now_s = view.evidence.looks[-1].at_ns / 1e9
    return max(view.wait_history.waited_s or 0.0, now_s - max(_begun_s(view)))


def _begun_s(view: JobView) -> list[float]:
    return [proc.member.started_ticks / TICKS_PER_SECOND for proc in view.by_rank.values()]


def _joining_s(view: JobView, ranks: tuple[int, ...]) -> float:
    """For how long a rank may be missing. One launcher starts all of a host's ranks at once, in
    their order: one before the last that is here was started as well, and has ended.
    """
    job = view.evidence.job
    if job.local_ranks is None or job.local_ranks != job.world_size:
        return JOINING_S
    if max(ranks) < max(view.by_rank):
        return JOINING_HERE_S
    begun_s = _begun_s(view)
    return JOINING_HERE_S + 3 * (max(begun_s) - min(begun_s))


def _not_joined(
    ranks: tuple[int, ...], joining: list[Process], reason: str, fact: Item, *, never: bool
) -> Candidate:
    """The others wait for these at the rendezvous."""
    return Candidate(
        cause="rank-missing",
        culprits=ranks,
        reason=reason,
        evidence=(fact, *(stack_item(proc) for proc in joining[:2])),
        sink=Sink.KILLED,
        liveness="never-wakes" if never else "unseen",
        phase="init",
        still_s=max((proc.activity.still_s or 0.0 for proc in joining), default=None),
    )


def _elsewhere(view: JobView, unseen: tuple[int, ...], joining: list[Process]) -> Candidate:
    """All ranks here wait: the rank that holds the job up is on a host that was not looked at."""
    looks = commands(view.evidence.job)
    for_them = f"for {ranks_text(unseen)}, {_not_here(view, unseen)}"
    if any(proc.place.call == "store" for proc in joining):
        reason = "has not joined the rendezvous"
        never = joined_for_s(view) > JOINING_S
        return replace(
            _not_joined(unseen, joining, reason, _counted(view), never=never),
            whole=f"{_seen_ranks(view)} wait at the rendezvous {for_them}",
            fixes=(_START_THERE, _LOOK_AT_ALL),
            confirm=looks,
        )
    waiting = any(proc.waits for proc in view.by_rank.values())
    wait = f"{'wait' if waiting else 'may wait'}{_in(view)}"
    return Candidate(
        cause="unknown",
        culprits=unseen,
        reason="is not on this host",
        whole=f"{_seen_ranks(view)} {wait} {for_them}",
        evidence=(_counted(view),),
        sink=Sink.NOTHING,
        liveness="computing",  # on its own host it may write a checkpoint: not seen here
        fixes=(_LOOK_AT_ALL,),
        confirm=looks,
    )


def _started_differently(view: JobView, joining: list[Process]) -> Iterator[Candidate]:
    """Hosts that were started with other world sizes, or as the same node."""
    job = view.evidence.job
    sizes: dict[int, list[Placement]] = {}
    for placement in job.placements:
        if placement.world_size:
            sizes.setdefault(placement.world_size, []).append(placement)
    if len(sizes) > 1:
        by_size = "; ".join(
            f"{size} on {_hosts_text([placement.host for placement in placements])}"
            for size, placements in sorted(sizes.items())
        )
        fewest = min(sizes, key=lambda size: (len(sizes[size]), size))
        ranks = tuple(sorted({rank for placement in sizes[fewest] for rank in placement.ranks}))
        statement = f"the hosts were started with different world sizes: {by_size}"
        yield _wrongly_started(ranks, statement, f"WORLD_SIZE: {by_size}", joining)
    hosts, ranks = _claimed_twice(job.placements)
    if ranks:
        nowhere = (
            f"; {ranks_text(job.ranks_missing)} {verb(job.ranks_missing, 'was')} not started"
            if job.ranks_missing
            else ""
        )
        twice = f"{ranks_text(ranks)} {verb(ranks, 'was')} started twice"
        statement = f"{twice}, on {_hosts_text(hosts)}{nowhere}"
        fact = f"{ranks_text(ranks)}: processes on {_hosts_text(hosts)} at the same time"
        yield _wrongly_started(tuple(job.ranks_missing) or ranks, statement, fact, joining)


def _wrongly_started(
    ranks: tuple[int, ...], statement: str, fact: str, joining: list[Process]
) -> Candidate:
    reason, item = "was started differently from the others", Item("environment", None, fact)
    absent = _not_joined(ranks, joining, reason, item, never=True)
    return replace(absent, whole=statement, fixes=(_START_ALIKE,))


def _claimed_twice(placements: Sequence[Placement]) -> tuple[list[str], tuple[int, ...]]:
    """Hosts that have processes of the same ranks at the same time, and these ranks."""
    claims: dict[int, list[Placement]] = {}
    for placement in placements:
        for rank in placement.ranks:
            claims.setdefault(rank, []).append(placement)
    twice = {rank: claim for rank, claim in claims.items() if _at_one_time(claim)}
    hosts = sorted({placement.host for claim in twice.values() for placement in claim})
    return hosts, tuple(sorted(twice))


def _at_one_time(claim: Sequence[Placement]) -> bool:
    times_ns = [placement.taken_unix_ns for placement in claim]
    return len(claim) > 1 and not is_old(min(times_ns), max(times_ns))


def _seen_ranks(view: JobView) -> str:
    """Who waits: those of this host, or of all that were looked at."""
    several = len(view.evidence.job.placements) > 1
    return "the inspected ranks" if several else "the ranks of this host"


def _in(view: JobView) -> str:
    operations = {proc.place.operation for proc in view.by_rank.values() if proc.waits} - {""}
    return f" in {operations.pop()}" if len(operations) == 1 else ""


def _not_here(view: JobView, unseen: tuple[int, ...]) -> str:
    """`which are not on this host (probably on node2)`."""
    several = len(view.evidence.job.placements) > 1
    where = "not on any inspected host" if several else "not on this host"
    hosts = hosts_of(view.evidence, unseen)
    probably = f" (probably on {_hosts_text(hosts)})" if hosts else ""
    return f"which {verb(unseen, 'is')} {where}{probably}"


def _counted(view: JobView) -> Item:
    job = view.evidence.job
    hosts = _hosts_text([placement.host for placement in job.placements]) or job.host
    text = f"{len(view.by_rank)} of {job.world_size} ranks were seen, on {hosts}"
    return Item("proc", None, text)


def _hosts_text(hosts: Sequence[str]) -> str:
    if len(hosts) <= _MOST_HOSTS:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:2])} and {len(hosts) - 2} others"
