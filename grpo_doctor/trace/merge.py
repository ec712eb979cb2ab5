"""Merges a run directory into one `Trace`: every rank on one clock, nothing lost in silence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from grpo_doctor.errors import TraceError
from grpo_doctor.phases import PHASES
from grpo_doctor.trace import columns
from grpo_doctor.trace.facts import RunFacts, of_all_hosts
from grpo_doctor.trace.joined import joined_servers, within_run
from grpo_doctor.trace.jsonfile import mapping, number, object_in, texts, whole
from grpo_doctor.trace.model import SAME_CLOCK, Kind, Loss, Metrics, Process, Spans, Trace
from grpo_doctor.trace.parts import Part, read_parts, whole_parts
from grpo_doctor.trace.processes import NameTable, Recording, by_rank, rows_of
from grpo_doctor.trace.samples import Samples
from grpo_doctor.trace.timeline import PROCESS_PID_STEP, Timeline
from grpo_doctor.trace.trajectories.around import surroundings
from grpo_doctor.trace.trajectories.digest import digest
from grpo_doctor.trace.trajectories.table import table_of
from grpo_doctor_probes.record import rundir
from grpo_doctor_reports.schema.trajectories import Trajectories

# The packages of each framework: in a process of one another may be imported and train nothing.
_FRAMEWORKS = {
    "trl": ("trl",),
    "ms-swift": ("ms-swift", "trl"),
    "verl": ("verl",),
    "openrlhf": ("openrlhf",),
}


def hook_notes(
    rank_files: Iterable[Mapping[str, Any]], names: Iterable[str], framework: str = "unknown"
) -> list[str]:
    """Return one sentence per phase that a framework in this version has no known function for.

    Args:
        rank_files: what each recorded process reported of itself.
        names: of all spans. A phase that was recorded is not missing: rewards have spans under
            their own names where a version has no function around them.
        framework: the run's; of the others nothing is missed.
    """
    foreign = _FRAMEWORKS.keys() - _FRAMEWORKS.get(framework, _FRAMEWORKS.keys())
    recorded = {name.partition("/")[0] for name in names}
    notes: dict[str, None] = {}
    for file in rank_files:
        hooks = mapping(file.get("hooks"))
        packages = {name: mapping(facts) for name, facts in mapping(hooks.get("packages")).items()}
        hooked = {
            span.partition("/")[0]
            for facts in packages.values()
            for span in texts(facts.get("spans"))
        }
        visible = recorded | hooked
        for name, facts in packages.items():
            if name in foreign:
                continue
            absent = [p for p in PHASES if p in texts(facts.get("absent")) and p not in visible]
            notes.update(dict.fromkeys(_sentence(name, facts, phase) for phase in absent))
        notes.update(
            (f"a hook failed, so a phase may be missing: {problem}", None)
            for problem in texts(hooks.get("problems"))
        )
    return list(notes)


def _sentence(name: str, facts: Mapping[str, Any], phase: str) -> str:
    version = f" {facts['version']}" if facts.get("version") else ""
    return (
        f"phase `{phase}` is not seen in this version of {name}{version}: its functions have "
        "other names. Its time is in the enclosing phase, or unattributed"
    )


# The largest jobs known have some 10**5 ranks; a damaged file must not make a list of 10**18.
_MAX_WORLD_SIZE = 1 << 20


def merge(folder: Path, jobs: int | None = 1) -> Trace:
    """Read a run directory, also of a run that is running or was killed.

    Args:
        folder: the run directory.
        jobs: processes that read it, or None for as many as pay; see `read_parts`.

    Raises:
        TraceError: `folder` is not a run directory, or nothing in it can be read.
    """
    if not (folder / rundir.RANKS).is_dir() and not (folder / rundir.RUN_JSON).exists():
        raise TraceError(
            f"{folder} is not a run directory: it has neither {rundir.RUN_JSON} nor "
            f"{rundir.RANKS}/. Give the folder that `grpo-doctor run` printed, or a trace.json."
        )
    return merged(str(folder), read_parts(folder, jobs))


def merged(source: str, parts: Iterable[Part]) -> Trace:
    """Return the trace of a run from what was read of it, wherever that was.

    Raises:
        TraceError: nothing in it can be read.
    """
    every = whole_parts(parts)
    hosts = [part for part in every if not part.place.startswith(rundir.JOINED)]
    facts = of_all_hosts(*(part.facts for part in hosts))
    recordings = by_rank([recording for part in hosts for recording in part.recordings])
    problems = [problem for part in hosts for problem in part.problems]
    if not recordings and facts.start_ns is None:
        reasons = [*problems, *facts.problems] or ["It is empty."]
        text = " ".join(f"{reason.rstrip('.')}." for reason in reasons)
        raise TraceError(
            f"{source}: no rank left a readable recording. {text} "
            "Was the command started with `grpo-doctor run`?"
        )
    sampled = [section for part in hosts for section in part.sections]
    joined = joined_servers(every[len(hosts) :], facts, sampled)
    samples = joined.samples
    if recordings:  # else the launcher alone is the run
        recordings += joined.recordings
    timeline = Timeline(facts, recordings, samples)
    processes, names, args, blocks = _rows(timeline, facts)
    metrics, damaged = metrics_of(every[0].metrics, every[0].metrics_problem)
    unseen = hook_notes((r.facts for r in recordings), names, facts.run.framework)
    sampler_notes = dict.fromkeys(note for s in samples for note in s.notes)
    notes = (*sampler_notes, *joined.notes)
    missing = _missing_hosts(source, facts.nodes, len(hosts))
    problems += [*joined.problems, *facts.problems, *missing, *damaged, *unseen]
    spans = columns.join(blocks)
    trajectories, lost = trajectories_of(timeline, processes, spans, names)
    loss = _loss(facts, recordings, problems, samples)
    return Trace(
        source=source,
        run=replace(
            facts.run,
            duration_ns=timeline.duration_ns,
            notes=notes,
            libraries=tuple(sorted({name for s in samples for name in s.libraries})),
            servers=joined.servers,
        ),
        processes=tuple(processes),
        gpus=tuple({(g.host, g.uuid): g for s in samples for g in s.gpus}.values()),
        names=names,
        args=args,
        spans=spans,
        series=timeline.series(),
        metrics=metrics,
        loss=replace(loss, dropped_events=loss.dropped_events + lost),
        trajectories=trajectories,
    )


def _missing_hosts(source: str, expected: int, present: int) -> list[str]:
    if present >= expected:
        return []
    missing = f"the recordings of {expected - present} of {expected} hosts are missing"
    return [
        f"{missing}: copy each host's folder below {rundir.NODES} to {Path(source) / rundir.NODES}"
    ]


def trajectories_of(
    timeline: Timeline, processes: Sequence[Process], spans: Spans, names: tuple[str, ...]
) -> tuple[Trajectories | None, int]:
    """Return what the run has of trajectories, None without any, and how many rows were lost."""
    recorded = [
        (r.trajectories, p.clock.offset_ns - timeline.zero_ns, p.end_ns or timeline.duration_ns)
        for r, p in zip(timeline.recordings, processes)
        if r.trajectories is not None
    ]
    table = table_of(recorded)
    lost = sum(records.header.dropped for records, *_ in recorded)
    if not table.has_trajectories:
        return None, lost
    carriers = {p.index for p in processes if p.carries_steps}
    return digest(table, surroundings(spans, names, carriers)), lost


def _rows(
    timeline: Timeline, facts: RunFacts
) -> tuple[list[Process], tuple[str, ...], tuple[Mapping[str, Any], ...], list[Spans]]:
    """Processes, names, argument objects and blocks of spans."""
    recordings = timeline.recordings
    if not recordings:
        process, span = _launcher_only(timeline, facts)
        return [process], ("init",), (), [span]
    table = NameTable()
    processes = [timeline.process(index) for index in range(len(recordings))]
    sources = [
        (recording, process, table, process.clock.offset_ns - timeline.zero_ns)
        for recording, process in zip(recordings, processes)
    ]
    blocks = [rows_of(*source) for source in sources]
    for index, recording in enumerate(recordings):
        if recording.joined:
            blocks[index] = within_run(blocks[index], timeline.duration_ns)
    return processes, table.names.names, tuple(map(object_in, table.args)), blocks


def _launcher_only(timeline: Timeline, facts: RunFacts) -> tuple[Process, Spans]:
    """Return a command that no recorder was in: its whole life is `init`, and nothing is a step."""
    running = facts.run.exit.state == "running"
    end_ns = timeline.duration_ns
    process = Process(
        index=0,
        pid=PROCESS_PID_STEP,
        os_pid=facts.job_pid,
        host=facts.host,
        rank=0,
        role="job",
        clock=SAME_CLOCK,
        state="open" if running else "finished",
        start_ns=0,
        end_ns=end_ns,
    )
    rows = columns.Rows()
    rows.add(Kind.SPAN, 0, 0, end_ns, open=running)
    return process, rows.spans()


def metrics_of(rows: Iterable[Mapping[str, Any]], problem: str | None) -> tuple[Metrics, list[str]]:
    """`metrics.jsonl` as columns, and what is wrong with it, with the `problem` of its reader.

    A step said twice is updated. Where a run goes back to an earlier step, resumed from a
    checkpoint, what it had reported of that step and later ones belongs to discarded weights.
    """
    by_step: dict[int, dict[str, float]] = {}
    strange = repeated = 0
    for row in rows:
        step, values = whole(row.get("step")), row.get("metrics")
        if step is None or not isinstance(values, dict):
            strange += 1
            continue
        if step < max(by_step, default=step) and by_step.get(step, {}).keys() & values.keys():
            abandoned = [later for later in by_step if later >= step]
            repeated += len(abandoned)
            for later in abandoned:
                del by_step[later]
        by_step.setdefault(step, {}).update({str(k): number(v) for k, v in values.items()})
    problems = [problem] if problem else []
    if repeated:
        problems.append(
            f"{rundir.METRICS_JSONL}: the run went back to an earlier step; the metrics of "
            f"{repeated} steps from before it are left out"
        )
    if strange:
        problems.append(
            f"{rundir.METRICS_JSONL}: {strange} lines without a step or metrics left out"
        )
    return metrics_from(by_step), problems


def metrics_from(by_step: Mapping[int, Mapping[str, float]]) -> Metrics:
    """Return columns from rows; a step that lacks a metric has NaN there, and is marked absent."""
    steps = sorted(by_step)
    keys = dict.fromkeys(key for step in steps for key in by_step[step])
    absent = {k: np.array([k not in by_step[s] for s in steps]) for k in keys}
    return Metrics(
        steps=np.array(steps, dtype=np.int64),
        values={k: np.array([by_step[s].get(k, np.nan) for s in steps]) for k in keys},
        absent={k: mask for k, mask in absent.items() if mask.any()},
    )


def _seen_ranks(recordings: Sequence[Recording]) -> set[int]:
    """Return the ranks that recorded; of a driver's workers, those that know of other ranks."""
    recordings = [r for r in recordings if not r.joined]
    if any(r.role == rundir.DRIVER for r in recordings):
        return {r.rank for r in recordings if (whole(r.facts.get("world_size")) or 0) > 0}
    return {r.rank for r in recordings}


def _loss(
    facts: RunFacts,
    recordings: Sequence[Recording],
    problems: Sequence[str],
    samples: Sequence[Samples],
) -> Loss:
    headers = [r.content.header for r in recordings]
    ranks = _seen_ranks(recordings)
    expected = facts.run.world_size if ranks else 0
    notes = list(problems)
    if expected > _MAX_WORLD_SIZE:
        notes.append(f"the run claims {expected} ranks, which is implausible")
        expected = 0
    unnamed = sum(h.name_overflow for h in headers)
    if unnamed:
        notes.append(
            f"{unnamed} spans lost their name or arguments: the name table of their process was "
            f"full. Use fewer different names and arguments with `phase`"
        )
    errors = sum(h.errors for h in headers)
    if errors:
        notes.append(f"the recorder met {errors} internal errors; please report this run")
    notes += [problem for s in samples for problem in s.problems]
    return Loss(
        dropped_events=sum(h.dropped for h in headers),
        missing_ranks=tuple(rank for rank in range(expected) if rank not in ranks),
        truncated=any(r.content.truncated for r in recordings),
        notes=tuple(dict.fromkeys(notes)),
    )
