"""Which processes are the ranks of a job that is starting, where no environment has a number. Pure.

A program that starts its ranks itself (`mp.spawn`, a loop of `Process.start`) hands each its number
as an argument. So do the frames of those that are in `init_process_group`; what else the same
program started for the same function has not arrived there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from grpo_doctor.hang.model.process.stacks import is_library, short
from grpo_doctor_probes.discover.assemble import NUMBERED_BY_START, is_loopback
from grpo_doctor_probes.evidence import Evidence, Frame, Job, Member

JOINS = frozenset({"init_process_group", "_create_c10d_store", "_env_rendezvous_handler"})


def joining(evidence: Evidence) -> Iterator[int]:
    """Yield the processes that show the size of a job of which nothing else does."""
    for pid, frames in _frames(evidence).items():
        names = {short(frame.function) for frame in frames}
        if evidence.job.world_size is None and not JOINS.isdisjoint(names):
            yield pid


def settled(evidence: Evidence) -> Job:
    """Return the job with the ranks, and its size, that `joining` processes show as arguments."""
    job, numbers, sizes = evidence.job, dict[int, int](), set[int]()
    for call in reversed(evidence.arguments):  # the innermost call of a process is its first
        rank, world = (call.values.get(name, "") for name in ("rank", "world_size"))
        if rank.isdecimal() and world.isdecimal():
            numbers[call.pid] = int(rank)
            sizes.add(int(world))
    if len(sizes) != 1:
        return job
    (size,) = sizes
    makers = {member.parent for member in job.members if member.pid in numbers}
    numbers |= _arriving(evidence, numbers, makers, size)
    missing = tuple(rank for rank in range(size) if rank not in numbers.values())
    return replace(
        job,
        members=tuple(_cast(member, job, numbers, makers) for member in job.members),
        world_size=size,
        local_ranks=None if missing and not is_loopback(job.address) else size,
        ranks_missing=missing,
        notes=tuple(note for note in job.notes if note != NUMBERED_BY_START),
    )


def _arriving(
    evidence: Evidence, numbers: Mapping[int, int], makers: Collection[int], size: int
) -> dict[int, int]:
    """Return ranks that have not come to `init_process_group`: in the order of their start they
    have the numbers between those of the others.
    """
    frames = _frames(evidence)
    entries = {_entry(frames[pid]) for pid in numbers}
    dead = {each.pid for each in evidence.looks[-1].processes if each.state in ("Z", "X")}
    family = [
        member.pid
        for member in sorted(evidence.job.members, key=lambda m: (m.started_ticks, m.pid))
        if (member.parent in makers and member.role in ("rank", "helper"))
        and (member.pid in dead or _entry(frames.get(member.pid, ())) in (*entries, _IMPORTS))
    ]
    for order in (family, [pid for pid in family if pid not in dead]):
        bases = {numbers[pid] - place for place, pid in enumerate(order) if pid in numbers}
        if len(bases) == 1:
            ranks = enumerate(order, min(bases))
            return {pid: r for r, pid in ranks if pid not in numbers and 0 <= r < size}
    return {}


def _frames(evidence: Evidence) -> dict[int, tuple[Frame, ...]]:
    """The main thread's frames of each process."""
    stacks = evidence.stacks[-1]
    return {stack.pid: stack.threads[0].frames for stack in stacks if stack.threads}


_IMPORTS = ("<module>", "")


def _entry(frames: tuple[Frame, ...]) -> tuple[str, str] | None:
    """Return the user's function that a process was started for; None for one of a library.

    A process that multiprocessing spawned imports the program before it comes to `_bootstrap`.
    """
    names = [short(frame.function) for frame in frames]
    begun = names.index("_bootstrap") if "_bootstrap" in names else len(frames)
    own = [frame for frame in frames[:begun] if not is_library(frame)]
    if own and begun == len(frames) and "prepare" in names:
        return _IMPORTS
    return (own[-1].function, own[-1].file) if own else None


def _cast(member: Member, job: Job, numbers: Mapping[int, int], makers: Collection[int]) -> Member:
    """Return it as what it is among these ranks: one of them, what started or what helps them."""
    if member.pid in numbers:
        return replace(member, role="rank", rank=numbers[member.pid])
    if member.pid in makers and member.role in ("rank", "helper"):
        return replace(member, role="launcher", rank=None)
    parents = {each.pid: each.parent for each in job.members}
    above = member.parent
    while above in parents and above not in numbers:
        above = parents[above]
    return replace(member, rank=numbers.get(above))
