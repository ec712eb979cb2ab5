"""Garbage is collected after each offload."""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.device_memory import OFFLOAD_ROOM, offload_off_if_it_fits
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Replay, Settings, without

RULE = timed_rule("offload", signals.SETTINGS, uses=OFFLOAD_ROOM)
# Two collections of a process with a model take some 0.4 s; of a step of 10 s that is 4%, and half
# of it is the least that is worth a flag.
MIN_SHARE = 0.02
# Without the span only the whole offload is known; there a tenth makes the switch worth trying.
MIN_OFFLOAD_SHARE = 0.10
_KNOB, _SPAN = "offload.gc_collect", "offload/collect"


def check(view: RunView) -> Answer:
    """Take the recorded collections, else the setting and the offload's time."""
    collecting = view.span_seconds(_SPAN)
    if not collecting and view.knob(_KNOB) is not True:
        return NotApplicable("no garbage is collected after an offload")
    if not view.share("offload"):
        return NotApplicable("nothing is offloaded")
    share = collecting / view.step_s
    known = _SPAN in view.trace.names
    if known and share < MIN_SHARE:
        return Passed(f"garbage collection after offloads takes {percent(share, 1)} of the step")
    if not known and view.share("offload") < MIN_OFFLOAD_SHARE:
        return Passed(f"offload, collection included, takes {percent(view.share('offload'), 1)}")
    evidence = [
        Evidence("collection after offloads, per step", collecting, "s", f"{_SPAN} spans"),
        Evidence("collection after offloads", 100 * share, "% of the step", f"{_SPAN} spans"),
    ]
    own = Replay((without(_SPAN),), "without garbage collection after offloads")
    unknown = "the time of the collections was not recorded"
    change = Settings(((_KNOB, False),), own) if known else unknown
    risk = "Unreachable objects keep their memory until Python's own collector runs"
    risk += "; watch for OOM when vLLM wakes up." if view.now("vllm.use") is True else "."
    return Finding(
        severity=severity_of(share) if known else "low",
        confidence=0.9 if known else 0.4,
        cost=share if known else 0.0,
        phases=("offload",),
        evidence=tuple(evidence) if known else view.phase_evidence("offload"),
        cause=f"Garbage collection after offload takes {collecting:.3g} s of each "
        f"{view.step_s:.3g} s step."
        if known
        else "Garbage is collected after each offload; its time was not recorded.",
        fixes=(
            view.setting(_KNOB, False, change, risk=risk),
            *offload_off_if_it_fits(view, or_unknown=True),
        ),
    )
