"""The rules, one per file: every module `gdNNN_slug` of this folder, in order of its number.

Its docstring begins with the rule's title.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import replace
from typing import Any, cast

from grpo_doctor.findings.view import RuleFile

_RULE_FILE = re.compile(r"(gd\d{3})_(\w+)")


def _named(number: str, slug: str) -> RuleFile:
    file: Any = importlib.import_module(f"{__name__}.{number}_{slug}")
    title = file.__doc__.partition("\n")[0].removesuffix(".")
    file.RULE = replace(file.RULE, id=number.upper(), slug=slug.replace("_", "-"), title=title)
    return cast(RuleFile, file)


ALL: tuple[RuleFile, ...] = tuple(
    _named(*match.groups())
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__))
    if (match := _RULE_FILE.fullmatch(name))
)
