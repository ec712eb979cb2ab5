"""The sanity rules, by family; `@rule` enters each."""

from __future__ import annotations

from functools import cache

from grpo_doctor.launches.rule import RULES, Rule
from grpo_doctor.launches.rules import (
    batches,
    endings,
    engines,
    inputs,
    layouts,
    lengths,
    processes,
    servers,
    training,
)

FAMILIES = (batches, endings, engines, inputs, layouts, lengths, processes, servers, training)


@cache
def load() -> tuple[Rule, ...]:
    """Return all rules, by number."""
    return tuple(sorted(RULES, key=lambda each: each.id))
