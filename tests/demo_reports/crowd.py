"""Findings of every family and forty rules: what a bad run of a full rule book looks like."""

from __future__ import annotations

from typing import Any, Final

_FAMILIES: Final = (
    ("offload", "The model is copied to the host and back in every step", "offload", 0.11),
    ("rollout", "vLLM preempts requests: its KV cache is small", "rollout", 0.09),
    ("rollout", "One sample in 64 holds up every rollout", "rollout", 0.07),
    ("sync", "Weights are gathered parameter by parameter", "sync", 0.06),
    ("data", "Images are decoded at four times the size that the model reads", "dataload", 0.05),
    ("reward", "Rewards are computed one after the other", "reward", 0.04),
    ("training", "A third of the tokens that train sees is padding", "train", 0.04),
    ("system", "Ranks 12 to 15 share two cores", "rollout", 0.03),
    ("learning", "Entropy has collapsed by step 31", "", 0.0),
    ("learning", "Six of ten groups have the same reward throughout", "", 0.0),
    ("visibility", "A quarter of each step is in no phase", "", 0.25),
)
_SEVERITIES: Final = ("high", "high", "medium", "medium", "medium", "low", "low", "info")


def crowd_findings(step_time_s: float) -> list[dict[str, Any]]:
    """Return one finding per line of the list above, gravest first."""
    return [
        {
            "id": f"GD{30 + at:03}",
            "slug": family,
            "title": title,
            "family": family,
            "severity": _SEVERITIES[min(at, len(_SEVERITIES) - 1)],
            "confidence": 0.9 - 0.04 * at,
            "cost": cost_of(share, step_time_s),
            "phases": [phase] if phase else [],
            "ranks": [12, 13, 14, 15] if family == "system" else [],
            "steps": [31, 32, 33] if "Entropy" in title else [],
            "evidence": [
                {"text": "measured here", "value": share, "unit": "share", "source": "spans"}
            ],
            "cause": "A made-up cause, in a sentence of the usual length, to look at.",
            "fixes": [
                {
                    "knob": f"{family}.knob",
                    "from": 1,
                    "to": 2,
                    "spelling": f"--{family}_knob 2",
                    "predicted": _predicted(share) if phase else None,
                    "safety": "same-math",
                    "risk": "",
                }
            ],
        }
        for at, (family, title, phase, share) in enumerate(_FAMILIES)
    ]


def cost_of(share: float, step_time_s: float, gpus: int = 8) -> dict[str, Any]:
    """Return what a share of the step time is worth, at $2.50 for a GPU-hour."""
    hours = share * step_time_s * 48 * gpus / 3600
    a_day = share * 24 * gpus
    return {
        "share": share,
        "seconds_per_step": share * step_time_s,
        "gpu_hours": hours,
        "gpu_hours_per_day": a_day,
        "money": 2.5 * hours,
        "money_per_day": 2.5 * a_day,
        "currency": "USD",
    }


def crowd_checks(count: int, key: str, first: int) -> list[dict[str, Any]]:
    """Return rules that did not fire, with notes of the usual length."""
    return [
        {
            "id": f"GD{first + at:03}",
            "slug": f"rule-{first + at}",
            "title": f"Rule number {first + at} about the {_FAMILIES[at % 9][0]} of a step",
            key: f"gpu.signal_{at} (probe number {at})" if key == "missing" else "as it should be",
        }
        for at in range(count)
    ]


def _predicted(share: float) -> dict[str, Any]:
    change = -100 * share
    return {
        "low": 1.1 * change,
        "mid": 0.9 * change,
        "high": 0.5 * change,
        "unit": "step_time_pct",
        "basis": "replay of 48 steps",
    }
