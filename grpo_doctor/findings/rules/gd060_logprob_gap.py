"""The rollout engine and the trainer disagree on probabilities."""

from __future__ import annotations

from grpo_doctor.analysis.learning.shape import ends, onset, smooth
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.findings import learning
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import Severity, graded
from grpo_doctor.findings.view import RunView, rule
from grpo_doctor.memory.models.find import model_shape

POINTS = 3
RULE = rule("learning", learning.metric("gap", POINTS))
# Nats per token, mean of |engine - trainer|. Float32 differs by 1e-6, bfloat16 by 0.005 to 0.03;
# at 0.1 the ratio of a token is off by a tenth on average, half of the usual clipping bound.
GRADES: dict[Severity, float] = {"high": 0.30, "medium": 0.10, "low": 0.05}
_CORRECTION = "rollout.importance_correction"
# Two routers with the same weights choose other experts for 94% of the tokens in some layer
# (arXiv 2510.11370); replayed, the trainer uses the engine's choice. verl 0.9, ms-swift 4.1.
_REPLAY = "train.router_replay"


def check(view: RunView) -> Answer:
    """Judge the last steps."""
    gap = learning.finite(view, "gap")
    first, last = ends(gap)
    severity = graded(last, GRADES)
    if severity is None:
        return Passed(
            f"log-probs differ by {last:.2g} nats per token at last, {first:.2g} at first"
        )
    grows = last > 2 * first
    quantized, choices = _quantized(view), _choices(view)
    since = onset(gap, smooth(gap.values, 3) >= GRADES["low"])
    return Finding(
        severity=severity,
        confidence=0.9,
        phases=("rollout", "sync"),
        evidence=(
            *learning.over_run("difference", gap, "nats"),
            *learning.step_evidence("0.05 or more from step", since, gap),
            Evidence("quantization of the engine's weights", quantized, "", "settings"),
            Evidence("router replay", view.fact(_REPLAY), "", "settings"),
            Evidence("expert choices of a token", choices, "", "the model's config.json"),
        ),
        cause=f"Engine and trainer differ by {last:.2g} nats per token on average"
        + (", more and more." if grows else "."),
        fixes=_fixes(view, grows, quantized, choices),
        steps=learning.from_step(gap, since),
    )


def _fixes(
    view: RunView, grows: bool, quantized: str | None, choices: int | None
) -> tuple[Fix, ...]:
    fixes: list[Fix] = []
    if grows:
        text = "compare the engine's weights with the trainer's after a sync: some may be missing"
        fixes.append(learning.advice(view, text, safety="needs-code"))
    if view.now(_CORRECTION) is not True and view.spell(_CORRECTION, True) is not None:
        risk = "Needs the engine's log-probs."
        fixes.append(learning.setting(view, _CORRECTION, True, risk=risk))
    if quantized:
        text = f"let the engine run in 16 bits: its weights are quantized to {quantized}"
        fixes.append(learning.advice(view, text, safety="changes-numerics"))
    if choices and view.now(_REPLAY) != "R3" and view.spell(_REPLAY, "R3") is not None:
        also = view.spell("rollout.return_experts", True)
        risk = f"{choices} numbers of 2 bytes travel with each token." + (
            f" It also needs {also}." if also else ""
        )
        fixes.append(learning.setting(view, _REPLAY, "R3", risk=risk))
    text = "run engine and trainer in the same precision: fp16 for both, or a float32 head"
    fixes.append(learning.advice(view, text, safety="changes-numerics"))
    return tuple(fixes)


def _quantized(view: RunView) -> str | None:
    """Return what the engine's weights are quantized to; None where they are not, or unknown."""
    kind = str(view.fact("vllm.quantization") or "")
    return kind if kind.lower() not in {"", "none", "null", "false"} else None


def _choices(view: RunView) -> int | None:
    """Return how many experts a token is sent to in all layers; None for a dense or unknown
    model."""
    try:
        shape = model_shape(str(view.fact("model.name") or ""))
    except GrpoDoctorError:
        return None
    return shape.layers * shape.experts.active if shape.experts else None
