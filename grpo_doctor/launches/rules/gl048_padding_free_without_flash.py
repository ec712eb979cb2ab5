"""Padding-free training needs flash attention.

Packed sequences are kept apart by flash attention's variable-length kernels. ms-swift refuses
padding_free with another implementation.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import PLAIN_SWIFT, Flaw, View, fatal_flaw

DOMAIN = PLAIN_SWIFT
_FLASH = ("flash_attn", "flash_attention_2", "flash_attention_3", "flash_attn_2", "flash_attn_3")


def check(view: View) -> Flaw | None:
    """padding_free and the attention that was asked for."""
    attention = view.value("model.attention")
    if not view.launch.settings.get("train.padding_free") or not attention or attention in _FLASH:
        return None
    return fatal_flaw(
        headline="--padding_free needs flash attention",
        evidence=(f"attn_impl is {attention}",),
        fixes=("--attn_impl flash_attn", "or --padding_free false"),
        source=view.source("train.padding_free"),
    )
