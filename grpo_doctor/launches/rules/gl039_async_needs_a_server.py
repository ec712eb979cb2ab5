"""Asynchronous rollouts need a server.

A rollout that runs while the trainer computes cannot be on the trainer's GPU. ms-swift refuses
async_generate without a server.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SWIFT, Flaw, View, fatal_flaw

DOMAIN = SWIFT


def check(view: View) -> Flaw | None:
    """async_generate with a colocated engine."""
    if not view.launch.settings.get("rollout.async"):
        return None
    if view.value("vllm.mode") == "server" or view.engine_has_own_card:
        return None
    return fatal_flaw(
        headline="asynchronous rollouts need a server",
        evidence=(f"vllm_mode is {view.value('vllm.mode') or 'not set'}",),
        fixes=(
            "--vllm_mode server, with `swift rollout` on GPUs of its own",
            "or --async_generate false",
        ),
        source=view.source("rollout.async"),
    )
