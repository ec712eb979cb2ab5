"""ZeRO-3 where ZeRO-2 fits."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.collectives import collective_keys
from grpo_doctor.analysis.steps import NS_PER_S
from grpo_doctor.findings import device_memory, signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import Severity, percent, severity_of
from grpo_doctor.findings.signals import Signal
from grpo_doctor.findings.span_counts import phase_windows, stepping_columns
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.trace.intervals import intersect, union
from grpo_doctor.trace.model import Kind
from grpo_doctor.whatif import Add, Replay, WhatIf
from grpo_doctor.whatif.room import Room

RULE = timed_rule(
    "training",
    signals.SETTINGS,
    device_memory.DEVICE_MEMORY,
    Signal(
        "the model's size: grpo_doctor_probes.describe(config={'model_parameters': ...})",
        lambda a: bool(a.trace.run.config.get("model_parameters")),
    ),
    uses=(signals.COLLECTIVES,),
    min_ranks=2,
)
# Gathers that are seen; below it ZeRO-3 costs nothing that a change would show.
MIN_SHARE = 0.05
# The passes that gather weights under ZeRO-3 and not under ZeRO-2.
PASSES = ("train", "logprob", "rollout")
_GATHER = ("all_gather", "allgather")


def check(view: RunView) -> Answer:
    """Compare whole weights with the memory that training left."""
    if view.knob("deepspeed.stage") != 3:
        return NotApplicable("weights are not sharded over the ranks (no ZeRO-3)")
    more = _more_bytes(view)
    room = device_memory.room_for(view, more, *PASSES, "optimizer")
    gathers = _gather_seconds(view)
    share = view.of_step(sum(gathers.values()))
    if room is None:
        return NotApplicable("no device memory was sampled")
    if not room.fits:
        note = (
            f"gathers take {percent(share, 1)} of the step" if share else "no gathers were recorded"
        )
        return Passed(f"ZeRO-3 is needed: {room.text}; {note}")
    if view.trace.gpus and share < MIN_SHARE:
        return _unseen(view, room)
    if share < MIN_SHARE:
        return Passed(f"ZeRO-2 would fit, but gathers take {percent(share, 1)} of the step")
    return _finding(view, room, share, severity_of(share), confidence=0.8)


def _unseen(view: RunView, room: Room) -> Answer:
    if view.share("train") < MIN_SHARE:
        return Passed("ZeRO-2 would fit, but training is a small part of the step")
    return _finding(view, room, 0.0, "low", confidence=0.5)


def _finding(
    view: RunView, room: Room, share: float, severity: Severity, confidence: float
) -> Finding:
    phases = tuple(_gather_seconds(view)) or ("train",)
    note = (
        f"gathering takes {percent(share)} of the step"
        if share
        else "the gathers were not recorded, because NCCL returns at once"
    )
    return Finding(
        severity=severity,
        confidence=confidence,
        cost=share,
        phases=phases,
        evidence=(
            Evidence("ZeRO stage", 3, "", "settings"),
            *(
                Evidence(f"gathering in {phase}, per step", s, "s", "all_gather collectives")
                for phase, s in _gather_seconds(view).items()
            ),
            *room.evidence,
        ),
        cause=f"ZeRO-3 gathers all weights in every pass, and whole weights would fit: "
        f"{room.text}; {note}.",
        fixes=(_fix(view),),
    )


def _more_bytes(view: RunView) -> float:
    """Whole weights less this rank's part: what ZeRO-2 holds beyond ZeRO-3."""
    ranks = max(1, len(view.analysis.ranks))
    return (
        (device_memory.model_size(view).parameters or 0)
        * device_memory.weight_bytes(view)
        * (1 - 1 / ranks)
    )


def _gather_seconds(view: RunView) -> dict[str, float]:
    """Seconds per step after all ranks had come to a gather, by phase; the mean over ranks."""
    trace, analysis = view.trace, view.analysis
    codes = [c for c, name in enumerate(trace.names) if any(g in name.lower() for g in _GATHER)]
    kinds = (Kind.COLLECTIVE, Kind.COLLECTIVE_WAIT)
    ns_of = dict.fromkeys(PASSES, 0.0)
    columns = stepping_columns(view)
    for column in columns:
        rows = analysis.mains[column].rows
        rows = rows[np.isin(trace.spans.kind[rows], kinds)]
        # A gather that was started asynchronously blocks in the wait of the same sequence number.
        key = collective_keys(trace, rows)
        rows = rows[np.isin(key, key[np.isin(trace.spans.name[rows], codes)])]
        gathers = union(trace.spans.start_ns[rows], trace.spans.end_ns[rows])
        inside = intersect(gathers, view.waits.transfers[column])
        for phase in PASSES:
            ns_of[phase] += intersect(inside, phase_windows(view, column, phase)).total_ns
    scale = NS_PER_S * max(1, len(columns)) * max(1, len(analysis.steps.used))
    return {phase: ns / scale for phase, ns in ns_of.items() if ns}


def _fix(view: RunView) -> Fix:
    change: WhatIf = "this run's collectives don't show the gathers of another ZeRO stage"
    gathers = _gather_seconds(view)
    if gathers and not view.trace.gpus:
        edits = tuple(Add(phase, -seconds) for phase, seconds in gathers.items())
        change = Replay(edits, "without the gathers of its passes", half=True)
    risk = f"Each rank holds {device_memory.gib(_more_bytes(view))} GiB more of weights."
    preset = str(view.now("deepspeed.preset") or "")
    if "zero3" in preset:
        after = preset.replace("zero3", "zero2")
        return view.setting("deepspeed.preset", after, change, risk=risk)
    return view.setting("deepspeed.stage", 2, change, risk=risk)
