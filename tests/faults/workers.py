"""Several cases at a time: `python -m tests.faults --jobs N`.

Each worker is a process that runs one case after the other, as root in a process name space of its
own: there an attach without arguments finds the one job of its case, and nothing outlives it. Jobs
mostly wait, so that two or three a machine are no load; what needs the whole host comes afterwards.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from queue import SimpleQueue

import msgspec

from tests.faults.bench import Say, calm_line, fork_server, in_turn, line, planned, watched
from tests.faults.cases import NO_TIME_LEFT, Options, run_case
from tests.faults.controls import CONTROLS
from tests.faults.healthy import Calm
from tests.faults.jobs import ROOT, ForkServer, environment
from tests.faults.kept import Shelf
from tests.faults.registry import Fault, load
from tests.faults.score import Outcome

MANY_RANKS = 16  # more have the machine for themselves
_NAME_SPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


class Task(msgspec.Struct, frozen=True):
    """One case, or a healthy job that is attached to so many `times`. `until_s` None: no limit."""

    name: str
    seed: int = 0
    times: int = 0
    compare: bool = False
    collect: str | None = None
    by_pid: bool = False
    until_s: float | None = None


@cache
def isolation() -> tuple[str, ...]:
    """The command that gives a worker its name space; none where this user may not."""
    if shutil.which(_NAME_SPACE[0]) is None:
        return ()
    probe = subprocess.run([*_NAME_SPACE, "true"], capture_output=True, check=False)
    return () if probe.returncode else _NAME_SPACE


class Worker:
    """A process that runs tasks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [*isolation(), sys.executable, "-m", "tests.faults.workers"],
            cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, task: Task) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ChildProcessError(f"a worker ended in '{task.name}'")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def _crew(size: int) -> Iterator[Callable[[Task], bytes]]:
    """Runs a task in whichever worker is free."""
    workers = [Worker() for _ in range(size)]
    free: SimpleQueue[Worker] = SimpleQueue()
    for worker in workers:
        free.put(worker)

    def run(task: Task) -> bytes:
        worker = free.get()
        try:
            return worker.run(task)
        finally:
            free.put(worker)

    try:
        yield run
    finally:
        for worker in workers:
            worker.close()


def run_faults(
    faults: Sequence[Fault], seeds: Sequence[int], options: Options, say: Say, jobs: int
) -> list[Outcome]:
    """As `bench.run_faults`, so many cases at a time."""
    together, alone, turn = in_turn(faults, options.until, _needs_the_host)
    outcomes = []
    for size, group, until in ((jobs, together, turn), (1, alone, options.until)):
        tasks = [_task(fault, seed, options, until) for fault in group for seed in seeds]
        for answer in _answers(tasks, size):
            outcomes.append(msgspec.json.decode(answer, type=Outcome))
            say(line(outcomes[-1]))
    order = {fault.name: index for index, fault in enumerate(faults)}
    return sorted(outcomes, key=lambda outcome: order[outcome.name])


def run_controls(
    attaches: int,
    only: Sequence[str],
    say: Say,
    until: float,
    jobs: int,
    shelf: Shelf | None = None,
) -> list[Calm]:
    """As `bench.run_controls`, so many jobs at a time, those of many ranks alone."""
    limit = None if until == math.inf else until
    chosen = planned(attaches, only)
    large = [pair for pair in chosen if pair[0].world_size > MANY_RANKS]
    small = [pair for pair in chosen if pair[0].world_size <= MANY_RANKS]
    results = []
    for size, group in ((1, large), (jobs, small)):
        collect = None if shelf is None else str(shelf.folder.resolve())
        tasks = [
            Task(control.name, times=times, collect=collect, until_s=limit)
            for control, times in group
        ]
        for answer in _answers(tasks, size):
            results.append(msgspec.json.decode(answer, type=Calm))
            say(calm_line(results[-1]))
    order = {control.name: index for index, (control, _) in enumerate(chosen)}
    answered = [calm for calm in results if calm.failed != NO_TIME_LEFT]
    return sorted(answered, key=lambda calm: order[calm.name])


def _needs_the_host(fault: Fault) -> bool:
    return fault.whole_host or (fault.no_arguments and not isolation())


def _task(fault: Fault, seed: int, options: Options, until: float) -> Task:
    return Task(
        fault.name, seed, compare=options.compare, by_pid=options.by_pid,
        collect=None if options.collect is None else str(options.collect.resolve()),
        until_s=None if until == math.inf else until,
    )  # fmt: skip


def _answers(tasks: Sequence[Task], size: int) -> Iterator[bytes]:
    if not tasks:
        return
    with _crew(size) as run, ThreadPoolExecutor(size) as pool:
        running = [pool.submit(run, task) for task in tasks]
        try:
            for future in as_completed(running):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def serve() -> None:
    """The worker: tasks from standard input, answers to standard output."""
    load()
    with fork_server() as server:
        for text in sys.stdin.buffer:
            answer = _done(server, msgspec.json.decode(text, type=Task))
            sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
            sys.stdout.buffer.flush()


def _done(server: ForkServer, task: Task) -> Outcome | Calm:
    until = math.inf if task.until_s is None else task.until_s
    collect = None if task.collect is None else Path(task.collect)
    if task.times:
        shelf = None if collect is None else Shelf(collect)
        return watched(server, CONTROLS[task.name], task.times, until, shelf)
    options = Options(task.compare, collect, task.by_pid, until)
    return run_case(server, load()[task.name], task.seed, options)


if __name__ == "__main__":
    serve()
