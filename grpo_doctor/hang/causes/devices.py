"""Ranks whose GPU holds the others up: it does not end what its peers have ended, or is at
something of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from grpo_doctor.hang.causes.candidate import Candidate, Case, Liveness, Sink
from grpo_doctor.hang.causes.wording import culprit, in_phase, motion_item, stack_item
from grpo_doctor.hang.model import gpus
from grpo_doctor.hang.model.scene import Actor, Scene, has_pending
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import ranks_text, verb

_FIXES = (
    Fix("Look for an Xid of this GPU (dmesg -T | grep -i xid) and reset or replace it."),
    Fix("Start the next run with CUDA_LAUNCH_BLOCKING=1 on this rank to see which kernel it is."),
)


def propose(case: Case) -> Iterator[Candidate]:
    """By the recordings where they tell, else by a host that waits for nothing but its own GPU."""
    hung = {one.rank: one.text for one in case.scene.matching.blame if one.reason == "device-hung"}
    for rank, text in sorted(hung.items()):
        actor = case.scene.by_rank.get(rank)
        if actor is None or not (actor.held or actor in case.hosts):
            yield _hung(case.scene, rank, text, actor)
    if case.scene.all_spin:
        yield from _by_power(case.scene)
    own = [one for one in case.suspects if one.device_wait and not (one.held or one.rank in hung)]
    waiting = [one for one in case.scene.by_rank.values() if one.waits] if own else []
    for actor in own:
        if any(one is not actor for one in waiting):
            yield _busy_with_its_own(case.scene, actor)


def _hung(scene: Scene, rank: int, text: str, actor: Actor | None) -> Candidate:
    seen = (motion_item(actor), stack_item(actor)) if actor is not None else ()
    return Candidate(
        cause="gpu-fault",
        culprits=(rank,),
        reason="has a GPU that does not finish what the GPUs of its peers have finished",
        evidence=(Item("flight recorder", rank, text), *_of_gpu(scene, rank), *seen),
        sink=Sink.ORDER,
        liveness="device-hung",
        phase=actor.phase if actor is not None else None,
        still_s=scene.patience.waited_s,
        fixes=_FIXES,
        confirm=("nvidia-smi -q | grep -A4 -i -e xid -e ecc  # on that host",),
    )


def _busy_with_its_own(scene: Scene, actor: Actor) -> Candidate:
    """No collective is queued on it, and its host waits for it all the same."""
    told: tuple[Item, ...] = _of_gpu(scene, actor.rank)
    if has_pending(scene.recordings, scene.matching, actor.rank) is False:
        done = "has finished every collective that it was given"
        told = (Item("flight recorder", actor.rank, done), *told)
    return Candidate(
        cause="gpu-fault",
        culprits=culprit(actor),
        reason=f"waits for a kernel of its own GPU that is no collective{in_phase(actor)}",
        evidence=(*told, motion_item(actor), stack_item(actor)),
        sink=Sink.HELPER,
        liveness=_liveness(scene, actor.rank),
        phase=actor.phase,
        still_s=scene.patience.waited_s,
        fixes=_FIXES,
        confirm=("nvidia-smi dmon -s pu -c 10  # busy at high power: it computes and may end",),
    )


def _by_power(scene: Scene) -> Iterator[Candidate]:
    """Every host waits for its GPU and no recording tells for what: a GPU that computes draws
    power, one that waits in the kernel of a collective hardly any.
    """
    judged = gpus.judge(scene.evidence)
    if judged.conclusion == "one-computes":
        names = ranks_text(judged.ranks)
        whole = f"{names} {verb(judged.ranks, 'computes')} on the GPU while the others wait there"
        yield Candidate(
            cause="user-code-busy",
            culprits=judged.ranks,
            reason="computes on its GPU while the others' wait in the kernel of a collective",
            whole=whole,
            evidence=judged.items,
            sink=Sink.COUNTERS,
            liveness="computing",
        )
    elif judged.conclusion == "collective-wait":
        yield Candidate(
            cause="network-silent",
            culprits=(),
            reason="waits in a collective",
            whole="all GPUs are in the kernel of a collective, which does not end",
            evidence=judged.items,
            sink=Sink.COUNTERS,
            liveness="unseen",
            still_s=scene.patience.waited_s,
            fixes=(_LINKS,),
            confirm=("ncclras -v  # or: echo verbose status | nc localhost 28028",),
        )


_LINKS = Fix(
    "Check the links between the GPUs and hosts; NCCL_DEBUG=WARN in the next run names the one "
    "that fails."
)


def _liveness(scene: Scene, rank: int | None) -> Liveness:
    """A GPU without a kernel on it will not end one."""
    doing = gpus.judge(scene.evidence).of(rank) if rank is not None else "unknown"
    return "device-hung" if doing == "idle" else "computing"


def _of_gpu(scene: Scene, rank: int | None) -> tuple[Item, ...]:
    states = gpus.judge(scene.evidence).gpus
    return tuple(item for state in states if rank in state.ranks for item in state.items)
