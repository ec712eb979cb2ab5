"""What a `--deepspeed` value says: a preset's name, or the contents of its JSON file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from grpo_doctor.knobs.syntax import read as from_config
from grpo_doctor.knobs.tables import BY_NAME, TABLES

_PRESET = re.compile(r"^zero([0-3])(_offload)?$")
_STATED = ("deepspeed.offload_optimizer", "deepspeed.offload_param")
_TAKE_NAMES = ("bundled", "ms-swift")
_PRESETS = ("zero0", "zero1", "zero2", "zero3", "zero2_offload", "zero3_offload")


def read(value: Any) -> dict[str, Any]:
    """The `deepspeed.*` settings of a preset or of a configuration; empty where unknown.

    ms-swift replaces a preset's name by its contents, so a job reports either.
    """
    if isinstance(value, Mapping):
        return _from_contents(value)
    preset = _PRESET.match(str(value)) if value is not None else None
    if preset is None:
        return {}
    stage, offload = int(preset.group(1)), preset.group(2) is not None
    return {
        "deepspeed.stage": stage,
        "deepspeed.offload_optimizer": offload,
        "deepspeed.offload_param": offload and stage == 3,  # stage 2 keeps whole weights anyway
    }


def preset_in_force(framework: str, settings: Mapping[str, Any]) -> Any:
    """The preset or file of a job; `zero0` where it has none and the framework takes names."""
    now = settings.get("deepspeed.preset")
    without = now is None and not any(settings.get(row.knob) for row in TABLES["deepspeed"])
    return "zero0" if without and framework in _TAKE_NAMES else now


def preset_with(value: Any, knob: str, after: Any) -> str | None:
    """Return the preset that differs from preset `value` only in this setting; None without one."""
    now = read(value) if isinstance(value, str) else {}
    if knob not in now:
        return None
    changed = {**now, knob: after}
    if changed["deepspeed.stage"] != 3:
        changed["deepspeed.offload_param"] = False
    return next((name for name in _PRESETS if read(name) == changed), None)


def _from_contents(config: Mapping[str, Any]) -> dict[str, Any]:
    zero = config.get("zero_optimization")
    if not isinstance(zero, Mapping) or not isinstance(zero.get("stage"), int):
        return {}
    values = {
        row.knob: from_config("json", row, BY_NAME[row.knob].kind, config)
        for row in TABLES["deepspeed"]
    }
    values |= {knob: values[knob] or False for knob in _STATED}
    return {knob: value for knob, value in values.items() if value is not None}
