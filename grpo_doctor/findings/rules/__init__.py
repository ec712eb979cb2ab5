"""The rules, one per file: every module `gdNNN_slug` of this folder, in order of its number."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import cast

from grpo_doctor.findings.view import RuleFile

_RULE_FILE = re.compile(r"gd\d{3}_\w+")

ALL: tuple[RuleFile, ...] = tuple(
    cast(RuleFile, importlib.import_module(f"{__name__}.{module.name}"))
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name)
    if _RULE_FILE.fullmatch(module.name)
)
