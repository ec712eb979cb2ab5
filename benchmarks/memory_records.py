"""The words of a record of measured memory: what an option says, and whether it can be read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Config = Mapping[str, Any]


class UnreadableError(Exception):
    """Why a record can't be scored."""


def is_grpo(config: Config) -> bool:
    """Whether the record is of a GRPO run."""
    return "GRPO" in str(config.get("algo")) or config.get("rlhf_type") == "grpo"


def is_megatron(config: Config) -> bool:
    return "megatron" in str(config.get("framework"))


def flag(config: Config, name: str, otherwise: bool) -> bool:
    value = config.get(name)
    return otherwise if value is None else str(value).strip(" \\").lower() in ("true", "1", "yes")


def number(config: Config, *names: str) -> int | None:
    """The first of these options that has a number, which may stand in text."""
    for name in names:
        match = re.match(r"\D*(\d+)", str(config.get(name)))
        if match and not str(config[name]).startswith("$"):
            return int(match.group(1))
    return None
