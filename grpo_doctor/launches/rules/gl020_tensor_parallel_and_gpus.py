"""Engines do not divide the GPUs.

An engine on the trainer's GPUs takes tensor parallelism x pipeline stages of them, so that must
divide the number of training processes; a server must not need more GPUs than it is given.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import EVERY_COMMAND, Flaw, View, divisors, fatal_flaw

DOMAIN = EVERY_COMMAND


def check(view: View) -> Flaw | None:
    """GPUs of an engine against those that there are."""
    engine = view.degree("vllm.tensor_parallel_size", "vllm.pipeline_parallel_size")
    if view.launch.role == "rollout server":
        cards = view.launch.visible_gpus or view.host.server_cards or view.host.cards_per_node
        copies = view.degree("vllm.data_parallel_size")
        if cards is None or engine * copies <= cards:
            return None
        return _flaw(view, f"the server needs {engine * copies} GPUs of {cards}", cards)
    ranks = view.processes
    if (
        not view.colocated
        or not ranks
        or view.launch.framework == "openrlhf"
        or ranks % engine == 0
    ):
        return None
    text = f"{ranks} training processes are not divisible by engines of {engine} GPUs"
    return _flaw(view, text, ranks)


def _flaw(view: View, headline: str, cards: int) -> Flaw:
    return fatal_flaw(
        headline=headline,
        evidence=("tensor parallelism x pipeline stages must divide the GPUs",),
        fixes=(view.flags("vllm.tensor_parallel_size", divisors(cards, 8)),),
        source=view.source("vllm.tensor_parallel_size"),
    )
