"""What was set differently: knobs by canonical name, and the framework's own options beside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.compare.run import ComparedRun
from grpo_doctor_reports.schema.compare import SettingChange

# Where a run writes and what it is called are no settings of it.
_NAMES_ONLY = frozenset({"output_dir", "run_name", "logging_dir", "ddp_port", "master_port"})


def changed_knobs(before: ComparedRun, after: ComparedRun) -> dict[str, tuple[Any, Any]]:
    """Canonical name to (before, after), for knobs whose value differs; defaults count."""
    changed = {}
    for knob in knobs.KNOBS:
        pair = before.view.knob(knob.name), after.view.knob(knob.name)
        is_set = knob.name in before.trace.run.knobs or knob.name in after.trace.run.knobs
        if pair[0] != pair[1] and is_set:
            changed[knob.name] = pair
    return changed


def setting_changes(before: ComparedRun, after: ComparedRun) -> list[SettingChange]:
    """Knobs first, then options without a canonical name, then versions."""
    rows = [
        SettingChange(knob=name, name=name, before=a, after=b)
        for name, (a, b) in changed_knobs(before, after).items()
    ]
    rows += option_changes(before, after)
    rows += _differences(before.trace.run.versions, after.trace.run.versions, frozenset())
    return rows


def option_changes(before: ComparedRun, after: ComparedRun) -> list[SettingChange]:
    """The framework's own options that no canonical name stands for and that differ."""
    if before.trace.run.framework != after.trace.run.framework:
        return []
    canonical = {s.key for s in knobs.FRAMEWORKS.get(before.trace.run.framework, ())}
    return _differences(before.trace.run.config, after.trace.run.config, canonical | _NAMES_ONLY)


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], without: frozenset[str] | set[str]
) -> list[SettingChange]:
    return [
        SettingChange(knob=None, name=name, before=before.get(name), after=after.get(name))
        for name in sorted({*before, *after} - without)
        if before.get(name) != after.get(name)
    ]
