"""What all adapters say of the frameworks' versions."""

from __future__ import annotations

import re

import pytest

from grpo_doctor.phases import PHASES
from grpo_doctor_probes.hooks.boot import ADAPTERS, adapter_of
from grpo_doctor_probes.hooks.table import Adapter

RANGE = re.compile(r"(\d+(?:\.\d+)*)(?:-(\d+(?:\.\d+)*)?)?")  # `3.11` is one alone

ALL = {package: adapter_of(package) for package in ADAPTERS}


@pytest.mark.parametrize(("package", "adapter"), ALL.items(), ids=ALL)
def test_a_hook_is_of_versions_that_begin_before_they_end(package: str, adapter: Adapter) -> None:
    for hook in adapter.hooks:
        match = RANGE.fullmatch(hook.versions)
        assert match, (hook.module, hook.qualname, hook.versions)
        first, last = ([int(part) for part in (text or "99").split(".")] for text in match.groups())
        assert first <= last, (hook.module, hook.qualname, hook.versions)
        assert hook.module.partition(".")[0] == package
        assert hook.span.partition("/")[0] in PHASES, hook.span


@pytest.mark.parametrize("adapter", ALL.values(), ids=ALL)
def test_a_function_is_hooked_once(adapter: Adapter) -> None:
    rows = [(hook.module, hook.qualname) for hook in adapter.hooks]
    assert len(rows) == len(set(rows))
    assert adapter.modules() == {module for module, _ in rows} | set(adapter.patches)
