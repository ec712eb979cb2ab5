"""GPU memory is nearly exhausted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_doctor.analysis.gpu import GpuMemory
from grpo_doctor.analysis.sampled import series_named
from grpo_doctor.findings import signals
from grpo_doctor.findings.device_memory import fixes_for_memory, most_used
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import OUT_OF_MEMORY, percent
from grpo_doctor.findings.signals import Signal
from grpo_doctor.findings.view import RunView, rule
from grpo_doctor.whatif.room import GIB

RAN_OUT, RETRIES = "memory/out_of_memory/", "memory/alloc_retries"


RULE = rule(
    "training",
    signals.any_of(
        "GPU memory samples (record with `grpo-doctor run` on the GPU's machine), or counters "
        "`memory/alloc_retries` and `memory/out_of_memory/PHASE` of the trainer",
        signals.GPU_MEMORY,
        Signal("", lambda a: bool(series_named(a.trace, RETRIES)), (RETRIES,)),
        Signal(
            "",
            lambda a: any(series.name.startswith(RAN_OUT) for series in a.trace.series),
            (f"{RAN_OUT}*",),
        ),
    ),
)
# vLLM's default share is 0.9, and the CUDA context and NCCL take 1 to 3% more; above this what is
# left of 80 GiB is less than 2.5 GiB, the size of one large logits tensor.
FULL = 0.97
# A retry in most steps is a steady cost; a few may be a fragmented start.
STEADY = 0.50
_HEAVY = ("train", "logprob", "optimizer", "rollout", "sync")


@dataclass(frozen=True, slots=True)
class _State:
    gpu: GpuMemory | None
    filled: float
    phase: str | None
    retries: float  # since the warm-up, on the worst rank
    retry_steps: float  # share of the steps with one
    ran_out: str | None  # the phase in which an allocation failed for good

    @property
    def where(self) -> str | None:
        """The phase that is short of memory."""
        return self.ran_out or self.phase


def check(view: RunView) -> Answer:
    """Look at the most-used GPU, at retries, and at how the run ended."""
    state = _state(view)
    if state.ran_out is None and not state.retries and state.filled < FULL:
        if state.gpu is None:
            return Passed("no allocation was retried")
        return Passed(
            f"the most-used GPU reaches {percent(state.filled)} of its memory, no retries"
        )
    if state.ran_out is None and not state.retries and state.phase == "rollout":
        return Passed(f"vLLM fills {percent(state.filled)} of a GPU in rollouts, as configured")
    end = view.found("GD074")
    if state.ran_out is None and end is not None and OUT_OF_MEMORY in end.cause.lower():
        return Passed(f"{percent(state.filled)} of the most-used GPU's memory: see GD074")
    return Finding(
        severity="high"
        if state.ran_out or state.retry_steps >= STEADY
        else "medium"
        if state.retries
        else "low",
        confidence=0.95 if state.ran_out else (0.85 if state.retries else 0.5),
        phases=tuple(p for p in (state.where,) if p),
        evidence=tuple(_evidence(state)),
        cause=_cause(state),
        fixes=tuple(fixes_for_memory(view, state.where)) or (_advice(view),),
        headline=f"Memory ran out in {state.ran_out}" if state.ran_out else "",
    )


def _state(view: RunView) -> _State:
    gpu = most_used(view)
    phases = gpu.phase_peak_bytes if gpu else {}
    # A sample holds until the next one, so the peak of a phase is seen in the one after it too.
    peak = max(phases.values(), default=0.0)
    at = next((p for p in (*_HEAVY, *phases) if phases.get(p) == peak), None)
    counts = [_retries(view, s.values, s.t_ns) for s in view.series(RETRIES)]
    worst = max(counts, default=(0.0, 0.0))
    filled = gpu.peak_bytes / gpu.gpu.memory_total_bytes if gpu else 0.0
    names = view.series_names(f"{RAN_OUT}*")
    ran_out = names[0].removeprefix(RAN_OUT) if names else None
    return _State(gpu, filled, at, *worst, ran_out)


def _retries(view: RunView, values: np.ndarray, t_ns: np.ndarray) -> tuple[float, float]:
    """Retries in the used steps and the share of those steps; counted since the start."""
    finite = np.isfinite(values)
    values, t_ns = values[finite], t_ns[finite]
    windows = view.analysis.used_windows
    if not len(values):
        return 0.0, 0.0
    first = windows.start_ns[0] if len(windows) else t_ns[0]
    before = values[t_ns < first]
    rises = np.diff(np.r_[before[-1:] if len(before) else values[:1], values[t_ns >= first]])
    rises = np.maximum(rises, 0)
    return float(rises.sum()), float((rises > 0).mean()) if len(rises) else 0.0


def _cause(state: _State) -> str:
    parts = []
    if state.ran_out:
        parts.append(f"memory ran out in {state.ran_out} and ended the run")
    if state.retries:
        parts.append(
            f"the allocator had to free its cache and retry {state.retries:.0f} times, in "
            f"{percent(state.retry_steps)} of the steps"
        )
    if state.gpu is not None:
        total = state.gpu.gpu.memory_total_bytes
        parts.append(
            f"the most-used GPU reaches {state.gpu.peak_bytes / GIB:.1f} of {total / GIB:.1f} GiB"
            + (f", in {state.phase}" if state.phase else "")
        )
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def _evidence(state: _State) -> list[Evidence]:
    evidence = []
    if state.ran_out:
        evidence.append(Evidence("phase in which memory ran out", state.ran_out, "", RAN_OUT))
    if state.gpu is not None:
        total, source = state.gpu.gpu.memory_total_bytes, "gpu.memory_used"
        peak = round(state.gpu.peak_bytes / GIB, 2)
        evidence.append(Evidence("peak of the most-used GPU", peak, "GiB", source))
        evidence.append(Evidence("its size", round(total / GIB, 2), "GiB", state.gpu.gpu.name))
    if state.retries:
        evidence.append(Evidence("retries of the allocator", state.retries, "", RETRIES))
        evidence.append(Evidence("steps with a retry", 100 * state.retry_steps, "%", RETRIES))
    return evidence


def _advice(view: RunView) -> Fix:
    reason = "it keeps the run alive; it saves no measured time"
    text = "use shorter completions, fewer of them per pass, or more GPUs"
    return view.advice(text, reason, safety="changes-algorithm")
