"""Offload costs more than it saves."""

from __future__ import annotations

from grpo_doctor.findings.device_memory import (
    OFFLOAD_ROOM,
    SWITCHES,
    offload_off,
    room_without_offload,
)
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.view import RunView, timed_rule

RULE = timed_rule("offload", uses=OFFLOAD_ROOM)
# Below a twentieth, switching it off is lost in the spread of generation lengths.
MIN_SHARE = 0.05
# An optimizer step on the GPU takes a few percent; with ZeRO-Offload a tenth says it is the CPU's.
MIN_ZERO_OPTIMIZER_SHARE = 0.10
COLLECTING = "offload/collect"
_OPTIMIZER = "deepspeed.offload_optimizer"
_CONFIDENCE = {True: 0.9, None: 0.6}


def check(view: RunView) -> Answer:
    """Find offload spans, or ZeRO-Offload with a slow optimizer."""
    share = view.share("offload")
    zero = bool(view.knob("deepspeed.offload_optimizer"))
    if not share and not zero:
        return NotApplicable("nothing is offloaded")
    if zero and share < MIN_SHARE:
        return _zero_offload(view)
    if share < MIN_SHARE:
        return Passed(f"offload takes {percent(share, 1)} of the step")
    room = room_without_offload(view)
    if room.fits is False:
        return Passed(f"offload takes {percent(share, 1)} of the step and is needed: {room.text}")
    seconds, step = view.seconds("offload"), view.step_s
    collecting = view.span_seconds(COLLECTING)
    moving = max(0.0, share - collecting / step)
    if moving < MIN_SHARE:
        return Passed(
            f"offload takes {percent(share, 1)} of the step; "
            f"{percent((share - moving) / share, 1)} of that is garbage collection: see GD011"
        )
    text = "of which garbage collection, per step"
    moved = " and ".join(text for name, text in SWITCHES.items() if view.fact(name) is True)
    of_that = f", {collecting:.3g} s of it garbage collection" if collecting else ""
    return Finding(
        severity=severity_of(moving),
        confidence=_CONFIDENCE[room.fits],
        cost=share,  # without offload nothing is collected after it either
        phases=("offload",),
        evidence=(
            *view.phase_evidence("offload"),
            *([Evidence(text, collecting, "s", f"{COLLECTING} spans")] if collecting else []),
            *room.evidence,
        ),
        cause=f"Each step spends {seconds:.3g} s of {step:.3g} s on moving {moved or 'state'} to "
        f"the host and back around the rollout{of_that}; {room.text}.",
        fixes=(offload_off(view, room),),
    )


def _zero_offload(view: RunView) -> Answer:
    share = view.share("optimizer")
    if share < MIN_ZERO_OPTIMIZER_SHARE:
        return Passed(f"with ZeRO-Offload the optimizer takes {percent(share, 1)} of the step")
    preset = str(view.now("deepspeed.preset") or "")
    reason = "this run does not show how long the optimizer would take on the GPU"
    risk = "First check that the optimizer state fits in GPU memory."
    if preset.endswith("_offload"):
        knob, value = "deepspeed.preset", preset.removesuffix("_offload")
        fix = view.setting(knob, value, reason, risk=risk)
    elif view.spell(_OPTIMIZER, False) is not None:
        fix = view.setting(_OPTIMIZER, False, reason, risk=risk)
    else:
        text = 'remove "offload_optimizer" from zero_optimization in the DeepSpeed configuration'
        fix = view.advice(text, reason, risk=risk)
    return Finding(
        severity="medium",  # the part of it that a GPU would take is unknown
        confidence=0.5,
        cost=share,
        phases=("optimizer",),
        evidence=view.phase_evidence("optimizer"),
        cause=f"ZeRO-Offload runs the optimizer on the CPU, which takes {percent(share)} of the "
        f"step ({view.seconds('optimizer'):.3g} s of {view.step_s:.3g} s).",
        fixes=(fix,),
    )
