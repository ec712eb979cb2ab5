"""Ranks that sleep in the kernel for something that is no file: memory, a vfork, a GPU's driver."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.sleeps import sleep_of
from grpo_doctor.hang.causes.wording import culprit, doing, in_phase, named, stack_item, still_item
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import bytes_text


def propose(case: Case) -> Iterator[Candidate]:
    """By the kernel function in which the main thread sleeps."""
    for actor in case.hosts:
        if actor.held or actor.motion.kind == "working":
            continue
        sleep = sleep_of(actor)
        if sleep == "memory":
            yield _memory(actor)
        elif sleep == "vfork":
            yield _vfork(case.scene, actor)
        elif sleep == "gpu":
            yield _gpu(actor)


def _memory(actor: Actor) -> Candidate:
    limits = actor.limits[-1] if actor.limits else None
    room = ""
    if limits is not None and limits.memory_limit_bytes is not None:
        used = bytes_text(limits.memory_used_bytes or 0)
        room = f": its control group uses {used} of {bytes_text(limits.memory_limit_bytes)}"
    return Candidate(
        cause="oom-killed",
        culprits=culprit(actor),
        reason=f"waits for memory that its control group does not give{room},{in_phase(actor)}",
        evidence=(_kernel_item(actor), still_item(actor), stack_item(actor)),
        sink=Sink.KERNEL,
        liveness="never-wakes" if actor.motion.kind == "still" else "unseen",
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(Fix("Give the control group more memory, or need less of it."),),
        confirm=("cat /sys/fs/cgroup/**/memory.events  # high, max and oom grow",),
    )


def _vfork(scene: Scene, actor: Actor) -> Candidate:
    """A parent sleeps until its child has begun its own program."""
    youngest = max(
        scene.children(actor.pid), key=lambda one: one.member.started_ticks, default=None
    )
    child = f": {named(youngest)} {doing(youngest)}" if youngest is not None else ""
    return Candidate(
        cause="child-stuck",
        culprits=culprit(actor),
        reason=f"waits for a child that does not come to its own program{child}{in_phase(actor)}",
        evidence=(_kernel_item(actor), still_item(actor), stack_item(actor)),
        sink=Sink.KERNEL,
        liveness="unseen",
        phase=actor.phase,
        node=youngest.node if youngest is not None else None,
        still_s=actor.motion.still_s,
        fixes=(Fix("Look at the program that is started: it may lie on storage that hangs."),),
        confirm=(f"ps -o pid,stat,wchan:20,args --ppid {actor.pid}",),
    )


def _gpu(actor: Actor) -> Candidate:
    return Candidate(
        cause="gpu-fault",
        culprits=culprit(actor),
        reason=f"sleeps in the GPU's driver and does not come back{in_phase(actor)}",
        evidence=(_kernel_item(actor), still_item(actor), stack_item(actor)),
        sink=Sink.KERNEL,
        liveness="unseen",
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(Fix("Drain the host and reset or replace the GPU, then start again."),),
        confirm=("timeout 10 nvidia-smi  # hangs as well", "dmesg -T | grep -i -e nvrm -e xid"),
    )


def _kernel_item(actor: Actor) -> Item:
    main = actor.doer
    state, wchan = (main.state, main.wchan) if main is not None else ("?", "")
    return Item("proc", actor.rank, f"state {state} in {wchan or 'the kernel'}")
