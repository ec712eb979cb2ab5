"""Sequence parallelism needs padding removed.

verl's Ulysses divides packed sequences; with padding it refuses to start.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import PLAIN_VERL, Flaw, View, fatal_flaw

DOMAIN = PLAIN_VERL


def check(view: View) -> Flaw | None:
    """ulysses_sequence_parallel_size with use_remove_padding off."""
    divided = view.degree("parallel.context")
    if divided < 2 or view.value("train.padding_free"):
        return None
    return fatal_flaw(
        headline="sequence parallelism needs use_remove_padding",
        evidence=(f"ulysses_sequence_parallel_size is {divided}",),
        fixes=(view.flag("train.padding_free", True),),
        source=view.source("parallel.context", "train.padding_free"),
    )
