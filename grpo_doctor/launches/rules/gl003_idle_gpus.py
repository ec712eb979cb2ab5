"""Fewer processes than GPUs.

GPUs without a process stay idle for the whole run. Where a rollout server uses them, that is
meant; say so with --with, or with CUDA_VISIBLE_DEVICES before each of the two commands. The vLLM
of ms-swift before 3.5 takes a GPU that no process trains on.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLES, Flaw, View

DOMAIN = SAMPLES


def check(view: View) -> Flaw | None:
    """Several processes, fewer than there are GPUs for them."""
    cards, started = view.cards, view.processes_per_node
    if cards is None or started is None:
        return None
    if (
        started <= 1
        or started >= cards
        or view.launch.server
        or view.value("vllm.mode") == "server"
        or view.engine_has_own_card
    ):
        return None
    return Flaw(
        severity="low",
        headline=f"{cards - started} of {cards} GPUs have no process",
        evidence=(f"{started} processes per host, {cards} visible GPUs per host",),
        fixes=(f"start {cards} processes per host",),
    )
