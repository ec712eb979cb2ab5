"""Ranks that wait for the workers of their data loader."""

from __future__ import annotations

from collections.abc import Iterator

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.description import doing, process_item, stack_item, still_item, title
from grpo_doctor.hang.model.process.known_code import short
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.chain import family, has_succeeded, rests
from grpo_doctor.hang.verdict import Fix

_FIXES = (
    Fix("Load data in the training process to see the worker's own error.", "dataload.num_workers"),
    Fix("Give the DataLoader a timeout, so that a dead worker raises."),
    Fix(
        "Start workers with multiprocessing_context='spawn': do not fork after threads were "
        "started."
    ),
)


def propose(case: Case) -> Iterator[Candidate]:
    """Looks through the loader's queue at its workers."""
    for proc in case.idle:
        if waits_for_loader(case.view, proc):
            yield from _loader(case.view, proc)


def waits_for_loader(view: JobView, proc: Process) -> bool:
    """Return whether it waits in a loader, or loads data although it has loader processes."""
    if proc.place.call == "loader":
        return True
    children = view.children(proc.pid)
    has_loaders = any(child.member.role == "dataloader" for child in children)
    return proc.place.purpose == "dataload" and has_loaders


def _loader(view: JobView, proc: Process) -> Iterator[Candidate]:
    own = family(view, view.children(proc.pid))  # a fork server is between, with some
    workers = [child for child in own if child.member.role == "dataloader"]
    # One that has succeeded read its shard to the end.
    workers = [worker for worker in workers if not has_succeeded(worker)]
    if not workers and not _has_workers(proc):
        return  # it loads in the training process
    stuck = [worker for worker in workers if not worker.activity.progresses]
    halted = [worker for worker in workers if worker.cannot_run]
    if workers and len(stuck) < len(workers) and not halted:
        return  # at least one prepares a batch
    guilty = halted or [worker for worker in stuck if not rests(worker)] or stuck
    worker = f"{title(guilty[0])} {doing(guilty[0])}" if guilty else "none is left"
    candidate = Candidate(
        cause="dataload-blocked",
        reason=f"waits for its dataloader workers: {worker}",
        evidence=(stack_item(proc), *map(process_item, guilty[:4]), still_item(proc)),
        sink=Sink.HELPER,
        liveness="never-wakes" if halted else "unseen",
        phase="dataload",
        node=guilty[0].node if guilty else None,
        fixes=_FIXES,
        confirm=tuple(f"py-spy dump --pid {worker.pid}" for worker in guilty[:1]),
    ).of(proc)
    stopped = bool(guilty) and guilty[0].activity.kind == "stopped"
    yield candidate.continued(guilty[0].pid) if stopped else candidate


def _has_workers(proc: Process) -> bool:
    return any(
        short(frame.function) in ("_try_get_data", "_get_data") for frame in proc.place.frames
    )
