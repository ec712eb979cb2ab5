"""Ranks that cannot run at all: stopped, frozen, dead."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.memory import oom_items, out_of_memory, recent_oom
from grpo_doctor.hang.causes.wording import at, culprit, in_phase, stack_item, still_item
from grpo_doctor.hang.model.process.call_stack import is_library
from grpo_doctor.hang.model.process.known_code import short
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item, Undo

_AT_EXIT = ("_shutdown", "_exit_function", "_python_exit", "_run_exitfuncs", "shutdown")
_COMMUNICATION = re.compile(r"(pt_)?(gloo|nccl|mpi|ucc|hccl)|NCCL", re.IGNORECASE)


def propose(case: Case) -> Iterator[Candidate]:
    """Ranks by the state of their process."""
    for actor in case.scene.by_rank.values():
        if actor.motion.kind == "stopped":
            yield _stopped(actor)
        elif actor.motion.kind == "frozen":
            yield _frozen(actor)
        elif actor.motion.kind == "gone":
            if _missed(case.scene, actor):
                yield _dead(case.scene, actor)
        elif _is_left_over(case.scene, actor):
            yield _left_over(case.scene, actor)
        elif _leaves(actor) and _missed(case.scene, actor):
            yield _leaving(case.scene, actor)


def _stopped(actor: Actor) -> Candidate:
    traced = actor.look is not None and actor.look.state == "t"
    how = "held by a debugger" if traced else "stopped (SIGSTOP)"
    undo = Undo("continue", actor.pid, "", f"Send SIGCONT to pid {actor.pid}?")
    return Candidate(
        cause="rank-stopped",
        culprits=culprit(actor),
        reason=f"is {how}{in_phase(actor)}",
        evidence=(still_item(actor), stack_item(actor)),
        sink=Sink.PROCESS,
        liveness="stopped",
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(
            Fix("Detach the debugger that holds it.")
            if traced
            else Fix(f"kill -CONT {actor.pid} lets it go on; then find out who stopped it."),
            Fix("One that stops again at once wants its terminal: start it with `< /dev/null`."),
        ),
        confirm=(f"kill -CONT {actor.pid}  # the job must move at once",),
        undo=() if traced else (undo,),
    )


def _frozen(actor: Actor) -> Candidate:
    file = next((one.freezer for one in reversed(actor.limits) if one.freezer), "")
    word = "0" if file.endswith("cgroup.freeze") else "THAWED"
    undo = (Undo("thaw", actor.pid, file, f"Thaw the control group of pid {actor.pid}?"),)
    return Candidate(
        cause="rank-stopped",
        culprits=culprit(actor),
        reason=f"is frozen by its control group{in_phase(actor)}",
        evidence=(Item("cgroup", actor.rank, f"{file or 'the freezer'} says frozen"),),
        sink=Sink.PROCESS,
        liveness="stopped",
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(
            Fix("Thaw the control group; a paused container or a checkpointing job does this."),
        ),
        confirm=(f"echo {word} > {file}  # the job must move at once",) if file else (),
        undo=undo if file else (),
    )


def _missed(scene: Scene, actor: Actor) -> bool:
    """Whether it failed, or others wait for it: at the end of a job ranks end one by one."""
    failed = bool(_exit_code(actor)) or _first_is_unknown(scene)
    return failed or any(one.waits for one in scene.by_rank.values())


def _first_is_unknown(scene: Scene) -> bool:
    """Whether a rank has failed and of another one that is gone too nobody knows how it ended: who
    fails because another one died ends soon after it.
    """
    gone = [one for one in scene.by_rank.values() if one.motion.kind == "gone"]
    codes = [_exit_code(one) for one in gone]
    return any(codes) and None in codes


def _exit_code(actor: Actor) -> int | None:
    return actor.look.exit_code if actor.look is not None else None


def _dead(scene: Scene, actor: Actor) -> Candidate:
    oom = oom_items(scene, actor)
    code = _exit_code(actor)
    how = _exit_text(code)
    died = Item("proc", actor.rank, f"pid {actor.pid} has ended{f': {how}' if how else ''}")
    if oom:
        return out_of_memory(culprit(actor), "was killed for want of memory", (died, *oom))
    unclear = _first_is_unknown(scene)
    return Candidate(
        cause="rank-dead",
        culprits=culprit(actor),
        reason="is dead; which was first is not known" if unclear else _ended_text(code, how),
        evidence=(died, *_last_words(scene, actor)),
        sink=Sink.PROCESS if code or unclear else Sink.ENDED,
        liveness="dead",
        either=unclear,
        fixes=(Fix("Look at the first traceback in its log, and start the job again."),),
    )


def _ended_text(code: int | None, how: str) -> str:
    if code == 0:
        return "has ended in order (exit code 0), while others still wait for it"
    return f"is dead{f' ({how})' if how else ''}"


def _is_left_over(scene: Scene, actor: Actor) -> bool:
    """Whether this is not the rank but a helper that it forked before it died: it has the rank's
    environment and its sockets, but a fork does not take the communication threads along.
    """
    others = [one for one in scene.by_rank.values() if one is not actor and one.waits]
    # A rank that is still on its way to the rendezvous has no such threads either.
    joining = any(one.place.call == "store" or one.at_store for one in others)
    started = actor.member.parent in {one.member.parent for one in others}
    return (
        actor.look is not None
        and bool(actor.look.threads)
        and bool(others)
        and not joining
        and not started
        and not actor.waits
        and not _has_communication_threads(actor)
        and all(_has_communication_threads(one) for one in others)
    )


def _has_communication_threads(actor: Actor) -> bool:
    threads = actor.look.threads if actor.look is not None else ()
    return any(_COMMUNICATION.match(thread.name) for thread in threads)


def _left_over(scene: Scene, actor: Actor) -> Candidate:
    """The rank of a helper that outlived it is dead."""
    dead = [one for one in scene.actors if one.motion.kind == "gone" and one.rank is None]
    codes = [one.look.exit_code for one in dead if one.look is not None]
    how = _exit_text(codes[0]) if len(codes) == 1 else ""
    items = (
        Item(
            "proc",
            actor.rank,
            f"pid {actor.pid} has the environment of the rank but none of the communication "
            "threads that all other ranks have: it was forked from the rank and keeps its "
            "connections open",
        ),
        stack_item(actor),
    )
    oom = recent_oom(scene)
    if oom:
        return out_of_memory(culprit(actor), "was killed for want of memory", (*items, *oom))
    return Candidate(
        cause="rank-dead",
        culprits=culprit(actor),
        reason=f"is dead{f' ({how})' if how else ''}; only pid {actor.pid}, which it forked, lives",
        evidence=items,
        sink=Sink.PROCESS,
        liveness="dead",
        fixes=(Fix("Look at the first traceback in its log, and start the job again."),),
        confirm=(f"ps -o pid,ppid,lstart,nlwp,args -p {actor.pid}  # its parent is gone",),
    )


def _leaves(actor: Actor) -> bool:
    """Whether its program has ended, by its end or an exception, and Python waits for what is left
    of it: threads, child processes, handlers of `atexit`.
    """
    outermost = actor.place.frames[-1] if actor.place.frames else None
    return (
        outermost is not None
        and is_library(outermost)
        and short(outermost.function) in _AT_EXIT
        and not actor.motion.progresses
    )


def _leaving(scene: Scene, actor: Actor) -> Candidate:
    thread = actor.deed.user if actor.deed is not actor.place else None
    rest = f" and waits for its thread at {at(thread)}" if thread is not None else ""
    return Candidate(
        cause="rank-dead",
        culprits=culprit(actor),
        reason=f"has left its program, by its end or an exception,{rest or ' and cannot end'}",
        evidence=(*_last_words(scene, actor), stack_item(actor), still_item(actor)),
        sink=Sink.KERNEL,
        liveness="unseen",
        still_s=actor.motion.still_s,
        fixes=(
            Fix("Look at the first traceback in its log, and start the job again."),
            Fix("Start helper threads with daemon=True, so that a rank that fails can end."),
        ),
        confirm=(f"py-spy dump --pid {actor.pid}  # no frame of the training loop is left",),
    )


def _exit_text(code: int | None) -> str:
    if code is None:
        return ""
    number = code & 0x7F
    if number == 0:
        return f"exit code {code >> 8}"
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"


def _last_words(scene: Scene, actor: Actor) -> tuple[Item, ...]:
    lines = [line for log in scene.evidence.logs if log.pid == actor.pid for line in log.lines]
    return tuple(Item("log", actor.rank, line) for line in lines[-3:])
