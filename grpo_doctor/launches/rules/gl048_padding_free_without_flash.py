"""Padding-free training needs flash attention.

Packed sequences are kept apart by flash attention's variable-length kernels. ms-swift refuses
padding_free with another implementation.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import Flaw, Rule
from grpo_doctor.launches.view import View

RULE = Rule(
    id="GL048",
    slug="padding-free-without-flash",
    title="Padding-free training needs flash attention",
)
_FLASH = ("flash_attn", "flash_attention_2", "flash_attention_3", "flash_attn_2", "flash_attn_3")


def check(view: View) -> Flaw | None:
    """padding_free and the attention that was asked for."""
    if not view.is_framework("ms-swift") or view.launch.backend:
        return None
    attention = view.value("model.attention")
    if not view.launch.settings.get("train.padding_free") or str(attention) in _FLASH:
        return None
    if attention is None and not view.at_least("3.7.0"):
        return None
    if view.launch.settings.get("train.use_liger"):
        extra = "and the Liger loss does not take it in GRPO"
    else:
        extra = "the default may be another one"
    return Flaw(
        severity="high" if attention else "low",
        headline="--padding_free needs flash attention",
        evidence=(f"attn_impl is {attention or 'not said'}", extra),
        fixes=("--attn_impl flash_attn", "or --padding_free false"),
        source=view.source("train.padding_free"),
        ends=bool(attention),
    )
