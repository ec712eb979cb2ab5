"""Ranks that cannot run at all: stopped, frozen, dead."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink, ranks_of
from grpo_doctor.hang.causes.description import (
    at_frame,
    in_phase,
    stack_item,
    standstill,
    still_item,
)
from grpo_doctor.hang.causes.memory import oom_items, out_of_memory, recent_oom
from grpo_doctor.hang.model.process.call_stack import is_library
from grpo_doctor.hang.model.process.known_code import short
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.verdict import Fix, Item, Undo

_AT_EXIT = ("_shutdown", "_exit_function", "_python_exit", "_run_exitfuncs", "shutdown")
_COMMUNICATION = re.compile(r"(pt_)?(gloo|nccl|mpi|ucc|hccl)|NCCL", re.IGNORECASE)
_DETACH = Fix("Detach the debugger that stopped it.")
_WANTS_TERMINAL = Fix(
    "If it stops again immediately, it needs a terminal: start it with `< /dev/null`."
)
_READ_LOG = Fix("Read the first traceback in its log, and restart the job.")


def propose(case: Case) -> Iterator[Candidate]:
    """Ranks by the state of their process."""
    for proc in case.view.by_rank.values():
        if proc.activity.kind == "stopped":
            yield _stopped(proc)
        elif proc.activity.kind == "frozen":
            yield _frozen(proc)
        elif proc.activity.kind == "gone":
            if _missed(case.view, proc):
                yield _exited(case.view, proc)
        elif _is_left_over(case.view, proc):
            yield _left_over(case.view, proc)
        elif _leaves(proc) and _missed(case.view, proc):
            yield _leaving(case.view, proc)


def _stopped(proc: Process) -> Candidate:
    traced = proc.look is not None and proc.look.state == "t"
    how = "stopped by a debugger" if traced else "stopped (SIGSTOP)"
    candidate = Candidate(
        cause="rank-stopped",
        reason=f"is {how}{in_phase(proc)}",
        evidence=standstill(proc),
        sink=Sink.PROCESS,
        liveness="never-wakes",
        fixes=(_WANTS_TERMINAL,),
    )
    stopped = candidate.of(proc).continued(proc.pid, "the job must resume immediately")
    return replace(stopped, fixes=(_DETACH, _WANTS_TERMINAL), undo=()) if traced else stopped


def _frozen(proc: Process) -> Candidate:
    file = next((limits.freezer for limits in reversed(proc.limits) if limits.freezer), "")
    word = "0" if file.endswith("cgroup.freeze") else "THAWED"
    undo = Undo("thaw", proc.pid, file, f"Thaw the control group of pid {proc.pid}?")
    return Candidate(
        cause="rank-stopped",
        reason=f"is frozen by its control group{in_phase(proc)}",
        sink=Sink.PROCESS,
        liveness="never-wakes",
        evidence=(Item("cgroup", proc.rank, f"{file or 'the freezer'} reports frozen"),),
        fixes=(
            Fix(
                "Thaw the control group; a paused container or a job that is being "
                "checkpointed is frozen like this."
            ),
        ),
        confirm=(f"echo {word} > {file}  # the job must resume immediately",) if file else (),
        undo=(undo,) if file else (),
    ).of(proc)


def _missed(view: JobView, proc: Process) -> bool:
    """Whether it failed, or others wait for it: at the end of a job ranks end one by one."""
    failed = bool(_exit_code(proc)) or _first_is_unknown(view)
    return failed or any(proc.waits for proc in view.by_rank.values())


def _first_is_unknown(view: JobView) -> bool:
    """Return whether one rank failed and another ended in an unknown way.

    A rank that fails because another one died ends soon after it.
    """
    ended_ranks = [proc for proc in view.by_rank.values() if proc.activity.kind == "gone"]
    codes = [_exit_code(proc) for proc in ended_ranks]
    return any(codes) and None in codes


def _exit_code(proc: Process) -> int | None:
    return proc.look.exit_code if proc.look is not None else None


def _exited(view: JobView, proc: Process) -> Candidate:
    code = _exit_code(proc)
    how = _exit_text(code)
    exit_item = Item("proc", proc.rank, f"pid {proc.pid} has ended{f': {how}' if how else ''}")
    oom = oom_items(view, proc)
    if oom:
        return out_of_memory(ranks_of(proc), (exit_item, *oom))
    unclear = _first_is_unknown(view)
    reason = f"is dead{f' ({how})' if how else ''}"
    if unclear:
        reason = "is dead; which rank died first is unknown"
    elif code == 0:
        reason = "exited normally (exit code 0), but others still wait for it"
    sink = Sink.PROCESS if code or unclear else Sink.ENDED
    rank_dead = dead(ranks_of(proc), reason, (exit_item, *_last_words(view, proc)), sink)
    return replace(rank_dead, either=unclear)


def dead(ranks: tuple[int, ...], reason: str, evidence: tuple[Item, ...], sink: Sink) -> Candidate:
    """Ranks of which no process is left."""
    return Candidate(
        cause="rank-dead",
        culprits=ranks,
        reason=reason,
        evidence=evidence,
        sink=sink,
        liveness="dead",
        fixes=(_READ_LOG,),
    )


def _is_left_over(view: JobView, proc: Process) -> bool:
    """Whether this is not the rank but a helper that it forked before it died: it has the rank's
    environment and its sockets, but a fork does not take the communication threads along.
    """
    if proc.look is None or not proc.look.threads:
        return False
    if proc.waits or _has_communication_threads(proc):
        return False
    waiting = [peer for peer in view.by_rank.values() if peer is not proc and peer.waits]
    # A rank that is still on its way to the rendezvous has no such threads either.
    joining = any(peer.place.call == "store" or peer.at_store for peer in waiting)
    started = proc.member.parent in {peer.member.parent for peer in waiting}
    return (
        bool(waiting)
        and not joining
        and not started
        and all(map(_has_communication_threads, waiting))
    )


def _has_communication_threads(proc: Process) -> bool:
    threads = proc.look.threads if proc.look is not None else ()
    return any(_COMMUNICATION.match(thread.name) for thread in threads)


def _left_over(view: JobView, proc: Process) -> Candidate:
    """The rank of a helper that outlived it is dead."""
    exited = [proc for proc in view.procs if proc.activity.kind == "gone" and proc.rank is None]
    codes = [proc.look.exit_code for proc in exited if proc.look is not None]
    how = _exit_text(codes[0]) if len(codes) == 1 else ""
    items = (
        Item(
            "proc",
            proc.rank,
            f"pid {proc.pid} has the rank's environment but none of the communication threads "
            "that all other ranks have: it was forked from the rank and keeps its connections "
            "open",
        ),
        stack_item(proc),
    )
    oom = recent_oom(view)
    if oom:
        return out_of_memory(ranks_of(proc), (*items, *oom))
    reason = (
        f"is dead{f' ({how})' if how else ''}; only its child process {proc.pid} is still running"
    )
    check = f"ps -o pid,ppid,lstart,nlwp,args -p {proc.pid}  # its parent is gone"
    return replace(dead(ranks_of(proc), reason, items, Sink.PROCESS), confirm=(check,))


def _leaves(proc: Process) -> bool:
    """Whether its program has ended, by its end or an exception, and Python waits for what is left
    of it: threads, child processes, handlers of `atexit`.
    """
    outermost = proc.place.frames[-1] if proc.place.frames else None
    return (
        outermost is not None
        and is_library(outermost)
        and short(outermost.function) in _AT_EXIT
        and not proc.activity.progresses
    )


def _leaving(view: JobView, proc: Process) -> Candidate:
    thread = proc.blocking_place.user if proc.blocking_place is not proc.place else None
    wait = f" and waits for its thread{at_frame(thread)}" if thread is not None else ""
    return Candidate(
        cause="rank-dead",
        reason=(
            f"has left its main program, normally or by an exception,{wait or ' and cannot exit'}"
        ),
        sink=Sink.HOLDER,
        evidence=(*_last_words(view, proc), stack_item(proc), still_item(proc)),
        fixes=(
            _READ_LOG,
            Fix("Start helper threads with daemon=True, so that a failed rank can exit."),
        ),
        confirm=(f"py-spy dump --pid {proc.pid}  # no frame of the training loop is left",),
    ).of(proc)


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


def _last_words(view: JobView, proc: Process) -> tuple[Item, ...]:
    lines = [line for log in view.evidence.logs if log.pid == proc.pid for line in log.lines]
    return tuple(Item("log", proc.rank, line) for line in lines[-3:])
