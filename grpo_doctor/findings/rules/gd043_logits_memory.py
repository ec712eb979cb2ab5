"""Logits take much of the memory."""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.device_memory import (
    MICRO_BATCH,
    PASSES,
    in_passes_of,
    model_size,
    most_used,
    peak_in,
)
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.signals import Signal
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif.room import GIB

RULE = timed_rule(
    "training",
    signals.SETTINGS,
    signals.GPU_MEMORY,
    Signal(
        "the size of the vocabulary: grpo_doctor_probes.describe(config={'model_vocab_size': ...})",
        lambda a: bool(a.trace.run.config.get("model_vocab_size")),
    ),
)
# Logits in half precision: themselves and their gradient in the bundled trainer; logarithms and a
# copy divided by the temperature besides in a plain loss.
COPIES = {"bundled": 2}
PLAIN_COPIES = 4
BYTES = 2
# A tenth of the GPU is what a larger micro-batch or cache would notice.
MIN_PART = 0.10
MUCH = 0.25
# Only a GPU that training nearly fills is short of what they take.
FULL = 0.85


def check(view: RunView) -> Answer:
    """Compute the logits of a micro-batch and compare them with the GPU."""
    if view.now("train.use_liger") is True:
        return NotApplicable("the loss is computed in chunks")
    gpu, tokens, vocabulary = most_used(view), _tokens(view), model_size(view).vocabulary or 0
    copies = COPIES.get(view.trace.run.framework, PLAIN_COPIES)
    needed = float(tokens * vocabulary * BYTES * copies)
    if gpu is None or not needed:
        micro = isinstance(view.knob(MICRO_BATCH), int)
        unknown = "the limit of completions" if micro else "the micro-batch"
        return NotApplicable(f"{unknown if not tokens else 'the GPU memory'} is not known")
    total = float(gpu.gpu.memory_total_bytes)
    part, filled = needed / total, peak_in(gpu, "train") / total
    if part < MIN_PART or filled < FULL:
        return Passed(
            f"logits take at most {needed / GIB:.2f} GiB, {percent(part, 1)} of a GPU that "
            f"training fills to {percent(filled)}"
        )
    return Finding(
        severity="medium" if part >= MUCH else "low",
        confidence=0.6,
        phases=("train",),
        evidence=(
            Evidence("vocabulary", vocabulary, "", "the job's description"),
            Evidence("completion tokens in a micro-batch, at most", tokens, "", "settings"),
            Evidence("assumed copies", copies, "", "how this trainer computes its loss"),
            Evidence("logits", round(needed / GIB, 2), "GiB", "computed"),
            Evidence("GPU memory", round(total / GIB, 2), "GiB", gpu.gpu.name),
            Evidence("used in training", 100 * filled, "%", "gpu.memory_used"),
        ),
        cause=f"{tokens} completion tokens x {vocabulary} vocabulary entries x {copies} copies are "
        f"{needed / GIB:.1f} GiB, {percent(part)} of a GPU that training fills to "
        f"{percent(filled)}.",
        fixes=(_fix(view),),
    )


def _tokens(view: RunView) -> int:
    micro, longest = view.knob(MICRO_BATCH), view.knob("rollout.max_completion_length")
    if not isinstance(micro, int) or not isinstance(longest, int):
        return 0
    return micro * longest


def _fix(view: RunView) -> Fix:
    reason = "it frees memory; the time depends on how that is used"
    if view.spell("train.use_liger", True) is not None:
        risk = "Needs the liger-kernel package; results differ in the last digits."
        return view.setting("train.use_liger", True, reason, safety="changes-numerics", risk=risk)
    micro, passes = view.now(MICRO_BATCH), view.now(PASSES)
    if isinstance(micro, int) and isinstance(passes, int) and micro % 2 == 0:
        risk = "Keeps the completions per optimizer step, in more passes."
        return in_passes_of(view, micro // 2, passes * 2, reason, risk=risk)
    text = "use a loss that is computed in chunks of tokens, or a shorter max_completion_length"
    return view.advice(text, reason, safety="needs-code")
