"""Model FLOP utilization (MFU): what training passes need against what the GPUs could do.

A token of a dense model needs 6 FLOPs per parameter: 2 forward, 4 backward (PaLM, appendix B,
arXiv 2204.02311); with LoRA 4, since frozen weights get no gradients. Attention is added: with
causal rows of S tokens 2 x S x (width of all query heads) forward per token and layer, three times
that with the backward pass. Of a mixture of experts the active ones count. The head counts for all
tokens, as in 6N; recomputed activations do not count (that would be HFU). Padding counts where only
padded tokens were recorded.
"""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis import Analysis
from grpo_doctor.analysis.gpu import rank_gpus
from grpo_doctor.analysis.per_step import counted
from grpo_doctor.document.memory import NotComparableError, run_setup
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.memory.models.shape import ModelShape
from grpo_doctor.phases import PHASES
from grpo_doctor.trace.model import Trace
from grpo_doctor_reports.schema.report import UtilizationEntry

_TOKENS, _PLACES = "train/tokens", "train/token_places"
_MOST_PCT = 100.0
# bf16 TFLOPS without sparsity, of NVIDIA's and AMD's data sheets, by a word of the card's name; the
# first that fits counts, so longer names come first. A PCIe or NVL card of a family has fewer.
_PEAK_TFLOPS = (
    ("H100 PCIe", 756.0), ("H100 NVL", 835.0), ("H800 PCIe", 756.0), ("GH200", 989.4),
    ("GB200", 2500.0), ("B200", 2250.0), ("H200", 989.4), ("H100", 989.4), ("H800", 989.4),
    ("H20", 148.0), ("A100", 312.0), ("A800", 312.0), ("A30", 165.0), ("A40", 149.7),
    ("A10G", 70.0), ("A10", 125.0), ("L40S", 362.1), ("L40", 181.1), ("L4", 121.0),
    ("RTX A6000", 154.8), ("RTX 6000 Ada", 364.2), ("RTX 4090", 165.2), ("RTX 3090", 71.0),
    ("MI300X", 1307.4),
)  # fmt: skip


def utilization_entry(analysis: Analysis) -> UtilizationEntry:
    """Return the utilization in `train` and in the whole step, or why it is not known."""
    try:
        return _entry(analysis)
    except NotComparableError as problem:
        return UtilizationEntry(reason=str(problem))
    except (GrpoDoctorError, ValueError, ZeroDivisionError, KeyError) as problem:
        return UtilizationEntry(reason=f"not modeled: {problem}")


def _entry(analysis: Analysis) -> UtilizationEntry:
    trace = analysis.trace
    card, capacity_bytes = _card(trace)
    peak = next((tflops for name, tflops in _PEAK_TFLOPS if name.lower() in card.lower()), None)
    if peak is None:
        raise NotComparableError(f"not modeled: the peak of {card} is not known here")
    setup = run_setup(trace, capacity_bytes)
    if setup.tensor_parallel * setup.pipeline_parallel * setup.context_parallel > 1:
        raise NotComparableError("not modeled: tensor, pipeline or context parallel training")
    if setup.model.vision is not None:
        raise NotComparableError("not modeled: what the vision tower needs is not counted")
    tokens = counted(analysis, _TOKENS)
    if padded := not np.isfinite(tokens).any():
        tokens = counted(analysis, _PLACES)
    if not np.isfinite(tokens).any():
        raise NotComparableError("the tokens of training passes were not recorded")
    row = setup.prompt_tokens + setup.completion_tokens
    flops = float(np.nansum(tokens)) * flops_per_token(setup.model, row, setup.method)
    train_s = float(analysis.used_seconds[:, :, PHASES.index("train")].sum())
    step_s = float(analysis.step_seconds.sum()) * tokens.shape[1]
    step_pct, train_pct = (100 * flops / (s * peak * 1e12) for s in (step_s, train_s))
    # Host times say when work was queued: then only the whole step is measured.
    by_host = "train" in analysis.by_host_clock_alone
    if max(step_pct, 0 if by_host else train_pct) > _MOST_PCT:
        raise NotComparableError("not modeled: more tokens were recorded than these GPUs can train")
    return UtilizationEntry(
        train_pct=None if by_host else round(train_pct, 1),
        step_pct=round(step_pct, 1),
        padding_counted=padded,
    )


def _card(trace: Trace) -> tuple[str, int]:
    owned = rank_gpus(trace)
    if len(set(owned.values())) < len(trace.ranks):
        raise NotComparableError(
            "not modeled: ranks share a GPU" if owned else "no GPU of a rank was sampled"
        )
    cards = {(g.name, g.memory_total_bytes) for g in trace.gpus if g.uuid in owned.values()}
    if len({name for name, _ in cards}) > 1 or any(gpu.mig for gpu in trace.gpus):
        raise NotComparableError("not modeled: GPUs of several kinds, or parts of GPUs")
    return min(cards)


def flops_per_token(shape: ModelShape, row_tokens: int, method: str) -> float:
    """Return the FLOPs of a forward and backward pass per token, `full` or `lora`.

    Args:
        shape: the model, without a vision tower.
        row_tokens: length of a row.
        method: of LoRA the adapters themselves are left out: less than 1% of the model.
    """
    forward = linear_flops(shape)
    attention = 2.0 * row_tokens * shape.query_width * shape.layers
    passes = 2.0 if method == "lora" else 3.0
    return passes * forward + 3.0 * attention


def linear_flops(shape: ModelShape) -> float:
    """Return the FLOPs of a forward pass per token in matrices: 2 per active parameter."""
    active = shape.experts.active / shape.experts.count if shape.experts else 1.0
    parameters = sum(
        linear.inputs * linear.outputs * linear.copies * (active if linear.part == "experts" else 1)
        for linear in shape.linears
        if linear.part in ("language", "experts")
    )
    return 2.0 * (parameters + shape.vocabulary * shape.hidden)
