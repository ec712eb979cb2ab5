"""The sleeping engine is woken in a costly order."""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.device_memory import most_used_in
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import SYNC_FULL, percent, severity_of
from grpo_doctor.findings.span_counts import seconds_beside
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Edit, Prediction, Replay, Settings, WhatIf
from grpo_doctor.whatif.room import GIB

RULE = timed_rule("sync", signals.SETTINGS, uses=(signals.GPU_MEMORY,))
# Mapping memory takes some 0.1 s of a step of 10 s; three times that is a copy.
MIN_SHARE = 0.03
_KNOB = "vllm.sleep_level"


def check(view: RunView) -> Answer:
    """Look at what is moved just before, and just after, the weights are sent."""
    level = view.knob(_KNOB)
    if not level or view.now("vllm.use") is False:
        return NotApplicable("the rollout engine does not sleep")
    before = seconds_beside(view, "offload", before="sync")
    after = seconds_beside(view, "offload", after="sync")
    if not before:
        return Passed("nothing is woken before the weights are sent")
    share = before / view.step_s
    restored = level == 1 and view.now("vllm.enable_lora") is not True
    if restored and share >= MIN_SHARE:
        return _restored(view, before, after)
    if not after:
        return _cache_first(view, before)
    return Passed(f"the wake-up before a sync takes {percent(share, 1)} of the step")


def _evidence(view: RunView, before: float, after: float) -> tuple[Evidence, ...]:
    source = f"offload spans next to sync, mean of {len(view.analysis.step_seconds)} steps"
    return (
        Evidence("moved just before sync, per step", before, "s", source),
        Evidence("moved between sync and what follows, per step", after, "s", source),
        Evidence("sleep level", view.knob(_KNOB), "", "settings"),
    )


def _restored(view: RunView, before: float, after: float) -> Finding:
    share = before / view.step_s
    risk = "All weights must be sent before each rollout, as this run does."
    change: WhatIf = Settings(((_KNOB, 2),))
    if not isinstance(view.gain(change), Prediction):
        kept = 1 - min(1.0, before / view.seconds("offload"))
        scenario = "without waking old weights before a sync (cautious end: half of it stays)"
        change = Replay((Edit(("offload",), kept),), scenario, half=True)
    fix = view.setting(_KNOB, 2, change, risk=risk)
    return Finding(
        severity=severity_of(share, proven=False),  # told by its place alone
        confidence=0.7,
        cost=share,
        phases=("offload", "sync"),
        evidence=_evidence(view, before, after),
        cause=f"Each step spends {before:.3g} s of {view.step_s:.3g} s on restoring the engine's "
        f"old weights, just before the new ones replace them.",
        fixes=(fix,),
        headline="The engine's old weights are restored only to be overwritten",
    )


def _cache_first(view: RunView, before: float) -> Answer:
    peak = most_used_in(view, "sync")
    if peak is None:
        return Passed("everything is woken before the sync; GPU memory was not sampled then")
    full, memory = peak
    if full < SYNC_FULL:
        return Passed(
            f"everything is woken before the sync, with memory at most {percent(full)} full"
        )
    size = round(memory.phase_peak_bytes["sync"] / GIB, 2)
    source = f"gpu.memory_used of GPU {memory.gpu.index}"
    text = 'wake_up(tags=["weights"])\n# send the weights here\nwake_up(tags=["kv_cache"])'
    return Finding(
        severity="medium",
        confidence=0.6,
        phases=("sync",),
        evidence=(
            *_evidence(view, before, 0.0),
            Evidence("peak GPU memory in sync", size, "GiB", source),
        ),
        cause=f"The engine's cache is woken before the weights are sent, and memory is "
        f"{percent(full)} full meanwhile.",
        fixes=(view.edit(text, "it frees memory, not time", safety="needs-code"),),
        headline="The engine's cache is woken before the weights are sent",
    )
