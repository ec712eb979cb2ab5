"""The sanity rules, one file each, found by their name: `gl001_slug.py`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from grpo_doctor.launches.rule import Rule


@cache
def load() -> tuple[Rule, ...]:
    """All rules, by number."""
    return tuple(
        _rule(name) for name in sorted(file.name for file in pkgutil.iter_modules(__path__))
    )


def _rule(name: str) -> Rule:
    module = importlib.import_module(f"{__name__}.{name}")
    number, _, slug = name.partition("_")
    return Rule(
        number.upper(), slug.replace("_", "-"), module.__doc__ or "", module.DOMAIN, module.check
    )
