"""The micro-batches of a run: how many, how large, how long."""

from __future__ import annotations

from grpo_doctor.analysis.counted import counted_mean
from grpo_doctor.findings.asking import whole
from grpo_doctor.findings.signals import Signal, any_of, sampled
from grpo_doctor.findings.spans_in import times_per_step
from grpo_doctor.findings.view import RunView

SPAN = "train/micro_batch"
TOKENS: Signal = sampled(
    "train/tokens",
    "a counter with the tokens of a step, without padding, beside train/token_places with padding; "
    "the bundled trainer records both",
)
_LENGTHS = {"completions/mean_length", "completions/max_length"}
LENGTHS: Signal = any_of(
    "lengths: counters `train/tokens` and `train/token_places`, or metrics "
    "`completions/mean_length` and `completions/max_length`",
    TOKENS,
    Signal("", lambda a: set(a.trace.metrics.values) >= _LENGTHS),
)


def per_step(view: RunView) -> float:
    """Micro-batches per step: their spans, else the setting; 0 where neither is known."""
    spans = times_per_step(view, SPAN)
    return spans or float(whole(view, "train.grad_accumulation") or 0)


def padding(view: RunView) -> tuple[float, str] | None:
    """The share of padding in what is trained on, and where that is from; None where unknown.

    From metrics it is that of the completions alone, as if each micro-batch were as wide as the
    longest of its rollout.
    """
    tokens = counted_mean(view.analysis, "train/tokens")
    places = counted_mean(view.analysis, "train/token_places")
    if tokens is not None and places:
        return max(0.0, 1 - tokens / places), "train/tokens and train/token_places"
    metrics = view.trace.metrics.values
    if not set(metrics) >= _LENGTHS:
        return None
    mean, longest = metrics["completions/mean_length"], metrics["completions/max_length"]
    known = (mean > 0) & (longest > 0)
    if not known.any():
        return None
    share = 1 - float((mean[known] / longest[known]).mean())
    return max(0.0, share), "completions/mean_length and max_length"
