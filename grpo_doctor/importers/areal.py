"""AReaL's `traces-r{rank}.jsonl`: one Chrome trace event a line, of AReaL 0.5 and newer.

The trainer marks what it does in a step by ranges such as `train.rollout`, with the step's number.
Every process counts microseconds since its own tracer began.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from grpo_doctor.errors import TraceError
from grpo_doctor.importers.kineto.load import files_in, read_each, trace_of
from grpo_doctor.importers.kineto.rank import MOST_RANKS, STEP, Range, RankFile, possible
from grpo_doctor.importers.kineto.stream import Distributed, Event, Head, arguments
from grpo_doctor.importers.text import lines, read_head
from grpo_doctor.trace.jsonfile import BAD_JSON, whole
from grpo_doctor.trace.model import Origin, Trace

_WHAT = "a trace of AReaL"
_SUFFIXES = (".jsonl", ".jsonl.gz")
_NAME = re.compile(r"traces-r(\d+)\.jsonl")
_IN_STEP = "train."
_EVENT = re.compile(rb'^\{(?=[^\n]*"ph": ?")(?=[^\n]*"name": ?")')
_LIMITS = (
    "Metrics and settings: the trace has neither.",
    "Who waits for whom: every process has its own time origin.",
    "GPUs: the trace has no samples of them.",
    "Rewards and waiting for samples: both are within `train.rollout`, shown as `rollout`.",
)
# The trainer's own ranges. What engines do within them counts to these, but for the optimizer:
# the same forward pass serves log-probs and training.
_PHASES = {
    "load_bcast": "dataload",
    "rollout": "rollout/generate",
    "compute_values": "logprob/values",
    "recompute_logp": "logprob/old",
    "ref_logp": "logprob/reference",
    "teacher_logp": "logprob/teacher",
    "compute_advantage": "reward/advantages",
    "ppo_update": "train",
    "critic_ppo_update": "train/critic",
    "dpo_step": "train",
    "update_weights": "sync",
    "save": "checkpoint",
    "checkpoint": "checkpoint",
    "eval": "eval",
}
_MOVES = re.compile(r"\w+_(onload|offload|pause|resume|pause_generation|continue_generation)$")
_OPTIMIZER = re.compile(r"\w+_engine\.step$")


def recognises(path: Path, head: bytes) -> bool:
    """Return whether this is such a file, or a folder that has some."""
    if path.is_dir():
        named = [file for file in files_in(path, _SUFFIXES) if _NAME.match(file.name)]
        return bool(named) and recognises(named[0], read_head(named[0]))
    return _EVENT.match(head) is not None


def load(path: Path) -> Trace:
    """Return the trace of one process or, of a folder, of those that have steps.

    Raises:
        TraceError: no line of it is an event.
    """
    paths = [path]
    if path.is_dir():
        paths = [file for file in files_in(path, _SUFFIXES) if _NAME.match(file.name)]
    files, problems = read_each(path, paths, _read)
    stepping = [file for file in files if file.steps] or files
    notes = []
    if len(stepping) < len(files):
        stepless = len(files) - len(stepping)
        notes.append(f"Left out: {stepless} of {len(files)} processes, which have no steps.")
    return trace_of(path, stepping, Origin(_WHAT, _LIMITS, durations_only=False), notes, problems)


def _read(path: Path) -> RankFile:
    file = RankFile(path)
    decoder = msgspec.json.Decoder(Event)
    begins: dict[int, Range] = {}
    ends: dict[int, float] = {}
    for _, line, ended in lines(path):
        if not line.strip():
            continue
        try:
            event = decoder.decode(line)
        except BAD_JSON:
            file.truncated |= not ended
            file.damaged += ended
            continue
        file.events += 1
        if event.ph != "X" or not possible(event):
            continue
        thread = event.tid if isinstance(event.tid, int) else 0
        args = arguments(event)
        _note_process(file, event, whole(args.get("rank")))
        interval = Range(_span_of(event.name), event.ts, event.dur, thread)
        file.ranges.append(interval)
        step = whole(args.get("global_step"))
        if step is not None and step >= 0 and event.name.startswith(_IN_STEP):
            first = begins.get(step)
            if first is None or interval.start_us < first.start_us:
                begins[step] = interval
            ends[step] = max(ends.get(step, 0.0), interval.start_us + interval.length_us)
    if not file.events:
        raise TraceError(
            f"{path}, line 1 is not an event, nor is any other. Accepted: what AReaL's perf_tracer "
            "writes, `traces-r{rank}.jsonl`, one file or their folder."
        )
    file.steps = _steps(begins, ends)
    return file


def _note_process(file: RankFile, event: Event, rank: int | None) -> None:
    if file.rank is None:
        match = _NAME.match(file.path.name)
        rank = rank if rank is not None else int(match[1]) if match else None
        file.rank = rank if rank is not None and 0 <= rank < MOST_RANKS else None
        file.os_pid = event.pid if isinstance(event.pid, int) else 0
        file.head = Head(distributedInfo=Distributed(rank=file.rank))


def _steps(begins: dict[int, Range], ends: dict[int, float]) -> list[Range]:
    """Each step from its first range to the next step's; the last one to the end of its own."""
    order = sorted(begins, key=lambda step: begins[step].start_us)
    steps = []
    for index, number in enumerate(order):
        first = begins[number]
        end = ends[number]
        if index + 1 < len(order):
            end = begins[order[index + 1]].start_us
        steps.append(Range(f"{STEP}{number}", first.start_us, end - first.start_us, first.thread))
    return steps


def _span_of(name: str) -> str:
    """Return the span of ours that a range is, or its own name."""
    if name.startswith(_IN_STEP):
        part = name.removeprefix(_IN_STEP)
        return _PHASES.get(part) or ("offload" if _MOVES.match(part) else name)
    return "optimizer" if _OPTIMIZER.match(name) else name.replace("/", ".")
