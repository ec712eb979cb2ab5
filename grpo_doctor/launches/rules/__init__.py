"""The sanity rules, one file each, found by their name: `gl001_slug.py`."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol, cast

from grpo_doctor.launches.rule import Flaw, Rule
from grpo_doctor.launches.view import View


class RuleFile(Protocol):
    """A module of this package."""

    RULE: Rule
    __doc__: str | None

    def check(self, view: View) -> Flaw | None:
        """What is wrong with the launch, if anything is."""


def load() -> tuple[RuleFile, ...]:
    """All rules, by number."""
    names = sorted(entry.name for entry in pkgutil.iter_modules(__path__))
    modules = (importlib.import_module(f"{__name__}.{name}") for name in names)
    return tuple(cast(RuleFile, module) for module in modules)
