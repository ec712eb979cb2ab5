"""Processes that the kernel killed because memory ran out, lets wait until it frees some, or has
swapped out.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.description import (
    asleep_for,
    in_phase,
    kernel_item,
    stack_item,
    standstill,
)
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.model.waiting.chain import ASKS, rests
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import bytes_text

_KILLED = re.compile(r"[Kk]illed process (\d+)")
LIST_KILLS = "dmesg -T | grep -i 'killed process'"
_MOST_KILLS = 2
_STANDS = ("still", "polling")
_TIMED = ("reward", "helper")  # of a sandbox whose time is over its own parent makes an end
# A swap disk answers in 0.1 ms (NVMe) to 10 ms (spinning): 100 in a second are 1% to all of it.
_SWAPS_PER_S = 100.0
_SWAPPED_BYTES = 16 * 1024 * 1024
BEFORE_THE_WAIT_S = 10.0  # a rank may be killed a little before others wait for it


def propose(case: Case) -> Iterator[Candidate]:
    """A rank that waits for a process of its own that was killed for memory, or for memory."""
    yield from map(_waits_for_memory, asleep_for("memory", case.hosts))
    yield from (_swapped(actor) for actor in case.hosts if _swaps(actor))
    scene = case.scene
    for actor in scene.actors:
        if actor.member.role == "rank" or actor.motion.kind != "gone" or actor.rank is None:
            continue
        owner = scene.by_rank.get(actor.rank)
        if owner is None or owner.motion.kind not in _STANDS or owner.waits:
            continue
        oom = oom_items(scene, actor)
        if oom and not _waits_for_another(scene, owner):
            reason = (
                f"waits for its {actor.member.role} process, which was killed because "
                "memory ran out"
            )
            yield replace(out_of_memory((actor.rank,), oom, reason), sink=Sink.ENDED)


def _waits_for_memory(actor: Actor) -> Candidate:
    limits = actor.limits[-1] if actor.limits else None
    room = ""
    if limits is not None and limits.memory_limit_bytes is not None:
        used = bytes_text(limits.memory_used_bytes or 0)
        room = f": its control group uses {used} of {bytes_text(limits.memory_limit_bytes)}"
    return Candidate(
        cause="oom-killed",
        reason=(
            f"waits for memory that its control group does not provide{room},{in_phase(actor)}"
        ),
        sink=Sink.HOLDER,
        liveness="never-wakes" if actor.motion.kind == "still" else "unseen",
        evidence=(kernel_item(actor), *standstill(actor)),
        fixes=(Fix("Give the control group more memory, or use less of it."),),
        confirm=("cat /sys/fs/cgroup/**/memory.events  # high, max and oom grow",),
    ).of(actor)


def _swaps(actor: Actor) -> bool:
    motion, look = actor.motion, actor.look
    if actor.held or look is None or not motion.seconds:
        return False
    faults_per_s = motion.major_faults / motion.seconds
    return faults_per_s >= _SWAPS_PER_S and look.swap_bytes >= _SWAPPED_BYTES


def _swapped(actor: Actor) -> Candidate:
    motion, look = actor.motion, actor.look
    assert look is not None
    faults_per_s = motion.major_faults / motion.seconds
    swapped = f"{bytes_text(look.swap_bytes)} of its memory is swapped out"
    return Candidate(
        cause="memory-swapped",
        reason=f"waits for pages that were swapped out{in_phase(actor)}: {swapped}",
        evidence=(
            Item(
                "proc",
                actor.rank,
                f"pid {actor.pid} had {faults_per_s:.0f} major page faults per second; "
                f"{swapped}, {bytes_text(look.rss_bytes)} is in memory",
            ),
            stack_item(actor),
        ),
        sink=Sink.HOLDER,
        liveness="progressing",
        fixes=(
            Fix("Keep optimizer state on the GPU.", "offload.optimizer"),
            Fix("Use fewer dataloader processes.", "dataload.num_workers"),
            Fix("Give the job more host memory, or a higher limit."),
        ),
        confirm=(f"grep VmSwap /proc/{actor.pid}/status; vmstat 1 5  # columns si and so",),
    ).of(actor)


def _waits_for_another(scene: Scene, owner: Actor) -> bool:
    """Whether at the other end of its wait is somebody who may answer: the dead have no ends."""
    hold = owner.hold
    if hold is None:
        return False
    if not hold.peers:
        return hold.kind in ASKS
    ends = [scene.by_pid.get(pid) for pid in hold.peers if pid != owner.pid]
    return any(end is None or not (end.held or rests(end)) for end in ends)


def out_of_memory(
    culprits: tuple[int, ...],
    items: tuple[Item, ...],
    reason: str = "was killed because memory ran out",
) -> Candidate:
    """The verdict that these ranks lost a process to the kernel's OOM killer."""
    return Candidate(
        cause="oom-killed",
        culprits=culprits,
        reason=reason,
        evidence=items,
        sink=Sink.KILLED,
        liveness="dead",
        fixes=(
            Fix(
                "Give the job more memory, or use less of it: fewer dataloader processes, no "
                "offload."
            ),
            Fix("Use fewer dataloader processes.", "dataload.num_workers"),
            Fix("Keep optimizer state on the GPU.", "offload.optimizer"),
        ),
        confirm=(LIST_KILLS,),
    )


def oom_items(scene: Scene, actor: Actor) -> tuple[Item, ...]:
    """Kernel messages that name this process, or a kill counted in its control group."""
    items = [Item("kernel", actor.rank, text) for _, pid, text in _kills(scene) if pid == actor.pid]
    kills = [limits.oom_kills for limits in actor.limits]
    if kills and kills[-1] > 0 and _is_counted(scene, actor):
        items.append(Item("cgroup", actor.rank, f"its control group counts {kills[-1]} OOM kills"))
    return tuple(items)


def _is_counted(scene: Scene, actor: Actor) -> bool:
    """Whether a kill that its control group counts may be its own end. The group counts since it
    was made: a kill of yesterday is not.
    """
    kills = [limits.oom_kills for limits in actor.limits]
    code = actor.look.exit_code if actor.look is not None else None
    if kills[-1] > kills[0]:
        return True
    killed = code == signal.SIGKILL
    if killed and actor.member.role not in _TIMED:
        return True
    return (killed or code is None) and bool(_lately(scene))


def _kills(scene: Scene) -> Iterator[tuple[float, int, str]]:
    """What the kernel says of OOM kills: how many seconds ago, of which process, its words."""
    for age_s, text in scene.evidence.host.kernel if scene.evidence.host is not None else ():
        killed = _KILLED.search(text)
        if killed:
            yield age_s, int(killed.group(1)), text


def _lately(scene: Scene) -> list[tuple[int, str]]:
    """Those since the ranks wait, by process. In a container the kernel names processes by the
    numbers of its host, which none here has.
    """
    since_s = (scene.patience.waited_s or 0.0) + BEFORE_THE_WAIT_S
    return [(pid, text) for age_s, pid, text in _kills(scene) if age_s <= since_s]


def unassigned_kills(scene: Scene) -> tuple[Item, ...]:
    """OOM kills since the ranks wait that nothing ties to this job, or keeps from being of it: a
    rank that had a control group of its own has left no count behind.
    """
    return tuple(
        Item("kernel", None, f"{text}; unknown whether that process belonged to this job")
        for _, text in _lately(scene)[-_MOST_KILLS:]
    )


def recent_oom(scene: Scene) -> tuple[Item, ...]:
    """An OOM kill that may have been of a rank whose process number is no longer known.

    Ranks of a job are started one after the other, so theirs are close together; other jobs of the
    host are killed as well. A kill is of the ranks' control group if that has counted it.
    """
    apart = 2 * len(scene.world)
    lately = _lately(scene)
    items = [
        Item("kernel", None, text)
        for killed, text in lately
        if any(abs(killed - actor.pid) <= apart for actor in scene.by_rank.values())
    ]
    limits = [actor.limits[-1] for actor in scene.by_rank.values() if actor.limits]
    kills = [limit.oom_kills for limit in limits if limit.memory_limit_bytes is not None or lately]
    if not items and any(kills):
        text = f"the ranks' control group counts {max(kills)} OOM kills"
        return (Item("cgroup", None, text),)
    return tuple(items)
