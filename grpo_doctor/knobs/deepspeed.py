"""What a `--deepspeed` value says: a preset's name, or the contents of its JSON file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_PRESET = re.compile(r"^zero([0-3])(_offload)?$")


def read(value: Any) -> dict[str, Any]:
    """The `deepspeed.*` knobs of a preset or of a configuration; empty where nothing is known.

    ms-swift replaces a preset's name by its contents, so a job reports either.
    """
    if isinstance(value, Mapping):
        return _from_contents(value)
    found = _PRESET.match(str(value)) if value is not None else None
    if found is None:
        return {}
    stage, offload = int(found.group(1)), found.group(2) is not None
    return {
        "deepspeed.stage": stage,
        "deepspeed.offload_optimizer": offload,
        "deepspeed.offload_param": offload and stage == 3,  # stage 2 keeps whole weights anyway
    }


def _from_contents(config: Mapping[str, Any]) -> dict[str, Any]:
    zero = config.get("zero_optimization")
    if not isinstance(zero, Mapping) or not isinstance(zero.get("stage"), int):
        return {}
    return {
        "deepspeed.stage": zero["stage"],
        "deepspeed.offload_optimizer": _on_host(zero.get("offload_optimizer")),
        "deepspeed.offload_param": _on_host(zero.get("offload_param")),
    }


def _on_host(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("device") in ("cpu", "nvme")
