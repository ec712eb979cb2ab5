"""The facts of a run: what the supervisor wrote (`run.json`) and what the job said (`job.json`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec

from grpo_doctor import knobs
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.launches import Launch, read
from grpo_doctor.trace import jsonfile
from grpo_doctor.trace.model import Exit, Run, Uncaught, Unhooked
from grpo_doctor_probes.record import clock
from grpo_doctor_probes.record.rundir import ERRORS_JSONL, JOB_JSON, RUN_JSON, UNHOOKED_JSONL

_EXIT_STATES = ("finished", "failed", "interrupted", "killed", "hung", "running")
_SAME_PROCESS_NS = 2_000_000_000
_RUNS = "grpo-doctor-out"
_MOST_ROWS = 1000
_Row = TypeVar("_Row", Uncaught, Unhooked)
_WITH_THE_JOB_NS = 10_000_000_000
_OF_LAUNCHERS = ("ChildFailedError", "CalledProcessError")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """`start_ns` and `end_ns` are CLOCK_MONOTONIC of the supervisor's host, which `clock`
    describes as a rank file does. None where the supervisor wrote nothing."""

    run: Run
    host: str
    job_pid: int
    clock: Mapping[str, Any]
    start_ns: int | None
    end_ns: int | None
    problems: tuple[str, ...]
    nodes: int = 1  # hosts of the job, each with a run directory of its own


def read_facts(folder: Path) -> RunFacts:
    """Read both files; either may be missing or damaged."""
    run, run_problem = jsonfile.read_object(folder / RUN_JSON)
    job, job_problem = jsonfile.read_object(folder / JOB_JSON)
    errors, errors_problem = jsonfile.read_lines(folder / ERRORS_JSONL)
    unhooked, unhooked_problem = jsonfile.read_lines(folder / UNHOOKED_JSONL)
    end = jsonfile.mapping(run.get("end"))
    command = jsonfile.texts(run.get("command"))
    version = jsonfile.text_or_none(job.get("framework_version"))
    config = jsonfile.mapping(job.get("config"))
    launch = None if config else _launch(command, run, folder)
    framework = str(job.get("framework") or framework_of(command, bool(run.get("bundled"))))
    if launch is not None and framework == "unknown":
        framework = launch.framework
    return RunFacts(
        run=Run(
            id=str(run.get("id") or folder.resolve().name),
            command=command,
            framework=framework,
            framework_version=version,
            world_size=max(
                0,
                jsonfile.whole(job.get("world_size")) or jsonfile.whole(run.get("world_size")) or 0,
            ),
            started_unix_ns=jsonfile.whole(run.get("started_unix_ns")) or 0,
            exit=_exit(run, end),
            config=config,
            knobs=dict(launch.settings)
            if launch is not None and launch.framework == framework
            else _knobs(framework, version, config, command),
            uncaught=tuple(_own_errors(errors, jsonfile.moment(end.get("ended_ns")))),
            unhooked=tuple(_objects(unhooked, Unhooked)),
            ended=jsonfile.texts(run.get("ended")),
            versions={k: str(v) for k, v in jsonfile.mapping(job.get("versions")).items()},
        ),
        nodes=jsonfile.whole(run.get("nodes")) or 1,
        host=str(run.get("host") or "unknown"),
        job_pid=jsonfile.whole(run.get("job_pid")) or 0,
        clock={"clock_id": run.get("clock_id"), "clocks": [run.get("clock")]},
        start_ns=jsonfile.moment(run.get("started_ns")),
        end_ns=jsonfile.moment(end.get("ended_ns")),
        problems=tuple(
            p for p in (run_problem, job_problem, errors_problem, unhooked_problem) if p
        ),
    )


def of_all_hosts(first: RunFacts, *others: RunFacts) -> RunFacts:
    """Return the facts of the first host, with the errors and problems of all."""
    everyone = (first, *others)
    run = replace(
        first.run,
        uncaught=tuple(error for facts in everyone for error in facts.run.uncaught),
        unhooked=tuple(process for facts in everyone for process in facts.run.unhooked),
        ended=tuple(line for facts in everyone for line in facts.run.ended),
    )
    return replace(first, run=run, problems=tuple(p for f in everyone for p in f.problems))


def _objects(rows: Sequence[Mapping[str, Any]], kind: type[_Row]) -> Iterator[_Row]:
    for row in rows[:_MOST_ROWS]:
        with suppress(msgspec.ValidationError):
            yield msgspec.convert(row, kind)


def _own_errors(rows: Sequence[Mapping[str, Any]], ended_ns: int | None) -> Iterator[Uncaught]:
    """Errors of ranks, and of a process without a rank that ended with the job; not those with
    which a launcher reports its ranks'."""
    for error in _objects(rows, Uncaught):
        late = ended_ns is not None and 0 <= ended_ns - error.at_ns <= _WITH_THE_JOB_NS
        if (error.rank is not None or late) and not error.text.startswith(_OF_LAUNCHERS):
            yield error


def framework_of(command: Sequence[str], bundled: bool) -> str:
    """The framework that a command starts, judged by its words; `unknown` if none is telling."""
    if bundled:
        return "bundled"
    words = [PurePath(word).name.lower() for word in command]
    for word in words:
        if word in ("swift", "megatron"):
            return "ms-swift"
        if word in ("trl", "grpo.py"):
            return "trl"
        if word.startswith("verl."):
            return "verl"
        if word.startswith("openrlhf."):
            return "openrlhf"
    return "unknown"


def _launch(command: Sequence[str], run: Mapping[str, Any], folder: Path) -> Launch | None:
    """What the command says, for a job that did not say its settings itself; files that it names
    are looked for where it was started. A file that was written since is not what ran."""
    parent = folder.resolve().parent
    started_in = jsonfile.text_or_none(run.get("cwd"))
    cwd = Path(started_in) if started_in else parent.parent if parent.name == _RUNS else folder
    try:
        launch = read(command, environment={}, cwd=cwd)
    except (GrpoDoctorError, ValueError, RecursionError):
        return None
    started_ns = jsonfile.whole(run.get("started_unix_ns"))
    files = {cwd / word for word in command} | {
        cwd / source.file
        for source in (*launch.sources.values(), *launch.option_sources.values())
        if source.file
    }
    if started_ns and any(_written_ns(file) > started_ns for file in files):
        return None
    return launch if launch.role == "train" else None


def _written_ns(path: Path) -> int:
    """When a file was written last; 0 for none."""
    try:
        return path.stat().st_mtime_ns if path.is_file() else 0
    except (OSError, ValueError):
        return 0


def _knobs(
    framework: str, version: str | None, config: Mapping[str, Any], command: Sequence[str]
) -> dict[str, Any]:
    if config:
        return knobs.canonical(framework, version, config)
    return knobs.from_command(framework, version, command)


def _exit(run: Mapping[str, Any], end: Mapping[str, Any]) -> Exit:
    if not end:
        return Exit(state="running" if _still_runs(run) else "unknown")
    state = end.get("state")
    return Exit(
        state=state if state in _EXIT_STATES else "unknown",
        code=jsonfile.whole(end.get("code")),
        signal=jsonfile.text_or_none(end.get("signal") or None),
    )


def _still_runs(run: Mapping[str, Any]) -> bool:
    """Whether the job is alive on this machine; its end is written last, by the supervisor."""
    pid, started_ns = jsonfile.whole(run.get("job_pid")), jsonfile.moment(run.get("started_ns"))
    if not pid or started_ns is None or run.get("clock_id") != clock.identity():
        return False
    begun_ns = clock.process_start_ns(pid)
    # A process id is used again; a start within two seconds of the noted one is the job's.
    return begun_ns is not None and abs(begun_ns - started_ns) < _SAME_PROCESS_NS
