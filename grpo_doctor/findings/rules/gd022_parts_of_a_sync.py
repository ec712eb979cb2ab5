"""The number of parts in which weights are sent does not match the free memory."""

from __future__ import annotations

from grpo_doctor.analysis.gpu import GpuMemory
from grpo_doctor.findings import signals
from grpo_doctor.findings.device_memory import most_used_in
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import SYNC_FULL, percent, severity_of
from grpo_doctor.findings.span_counts import gather_evidence, gathers
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif.room import GIB

RULE = timed_rule("sync", signals.SETTINGS, uses=(signals.GPU_MEMORY,))
# With so much room a part four times as large fits: parts are at most the model, which is here.
ROOM = 0.75
MIN_FIXED_SHARE = 0.03
# A gather's fixed part is some milliseconds; one of 20 ms and more is mostly bytes, which have to
# move in any number of parts. Fewer than 16 parts are not many for any model.
MANY, SHORT_S = 16, 0.02
# Parts of a 7B model of 2 GiB each.
PARTS = 8
_KNOB = "sync.move_model_batches"


def check(view: RunView) -> Answer:
    """Compare the parts' fixed time, and memory during the sync."""
    if not view.share("sync"):
        return NotApplicable("no weights are sent to a rollout engine")
    if view.spell(_KNOB, PARTS) is None:
        return NotApplicable(f"{view.framework} has no such setting")
    parts, peak = view.knob(_KNOB), most_used_in(view, "sync")
    if (parts or 1) <= 1:
        return _one_part(view, peak)
    return _cut(view, parts, peak[0] if peak else None)


def _one_part(view: RunView, peak: tuple[float, GpuMemory] | None) -> Answer:
    if view.knob("deepspeed.stage") != 3:
        return NotApplicable("weights are already whole on every rank")
    if peak is None:
        return Passed("sent in one part; GPU memory was not sampled during sync")
    full, memory = peak
    if full < SYNC_FULL:
        return Passed(f"sent in one part, with memory at most {percent(full)} full")
    size = round(memory.phase_peak_bytes["sync"] / GIB, 2)
    risk = "Takes slightly longer: each part has a fixed cost."
    outcome = "it frees memory, not time"
    source = f"gpu.memory_used of GPU {memory.gpu.index} during sync"
    return Finding(
        severity="medium",
        confidence=0.8,
        phases=("sync",),
        evidence=(
            Evidence("peak GPU memory in sync", size, "GiB", source),
            Evidence("of the GPU", round(100 * full, 1), "%", source),
            *view.phase_evidence("sync"),
        ),
        cause=f"Every rank gathers the whole model at once, and memory is {percent(full)} full "
        f"meanwhile.",
        fixes=(view.setting(_KNOB, PARTS, outcome, risk=risk),),
        headline="The whole model is gathered at once, with memory nearly full",
    )


def _cut(view: RunView, parts: int, full: float | None) -> Answer:
    gather = gathers(view)
    fixed = gather.fixed_s / view.step_s
    if full is not None and full > ROOM:
        return Passed(f"{parts} parts, with memory {percent(full)} full during sync")
    each = gather.seconds / gather.count if gather.count else 0.0
    if gather.count < MANY or each > SHORT_S:
        return Passed(f"{gather.count:.0f} parts of {1000 * each:.0f} ms each")
    if fixed < MIN_FIXED_SHARE:
        return Passed(f"the fixed cost of {parts} parts is {percent(fixed, 1)} of the step")
    room = "GPU memory was not sampled" if full is None else f"memory is {percent(full)} full"
    risk = f"Each part must fit next to the engine: {room} during sync."
    fix = view.setting(_KNOB, max(1, parts // 4), risk=risk)
    return Finding(
        severity=severity_of(fixed, proven=False),
        confidence=0.7 if full is not None else 0.5,
        cost=fixed,
        phases=("sync",),
        evidence=(Evidence("parts", parts, "", "settings"), *gather_evidence(view, gather)),
        cause=f"The weights go to the engine in {parts} parts, whose fixed cost alone is "
        f"{gather.fixed_s:.3g} s of each {view.step_s:.3g} s step; {room}.",
        fixes=(fix,),
        headline="The weights are sent in more parts than memory needs",
    )
