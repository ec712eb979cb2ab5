"""From the name in a launch to a model's shape: a folder, a cache on this disk, our table."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from grpo_doctor.bounded import JSON, nests_deeper
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.memory.facts import shipped
from grpo_doctor.memory.models.config import shape_of
from grpo_doctor.memory.models.shape import ModelShape

_VARIANT = re.compile(
    r"[-_](instruct|chat|base|it|hf|1m|thinking|preview|pretrained|unsloth|2507|\d{4}|fp8|awq|bf16"
    r"|gptq([-_]int[48])?|int[48]|bnb[-_]4bit|4bit|v\d+(\.\d+)?)$"
)
_QUANTIZED = (
    (re.compile(r"gptq-int8|int8|8bit|fp8"), 8),
    (re.compile(r"int4|4bit|awq|gptq|nf4"), 4),
    (re.compile(r"bf16"), 16),
)


class UnknownModelError(GrpoDoctorError):
    """A model of which neither this machine nor our table knows the shape."""


def model_shape(name: str, *, home: Path | None = None) -> ModelShape:
    """The shape of a model that a launch names.

    A folder with a config.json comes first, then the caches of Hugging Face and ModelScope on this
    machine, then the shipped table. Nothing is fetched.

    Args:
        name: a path, or a name such as `Qwen/Qwen2.5-7B-Instruct`.
        home: where the caches are; the user's home by default.

    Raises:
        UnknownModelError: no shape is known; the message names near ones.
        UnknownShapeError: there is a config.json, and it lacks sizes.
    """
    for path in _config_files(name, home or Path.home()):
        config = _read(path)
        if config is not None:
            return shape_of(name, config, str(path))
    table = _table()
    spellings = _shorter_and_shorter(name)
    for spelling in spellings:
        if spelling in table:
            full_name, row = table[spelling]
            shape = shape_of(full_name, row["config"], row["source"])
            # Other releases of the same sizes have other positions (their config.json).
            own = shape.max_positions if spelling in _shorter_and_shorter(full_name) else None
            listed = row.get("positions", {})
            positions = next((listed[s] for s in spellings if s in listed), own)
            return replace(shape, max_positions=positions)
    alike = difflib.get_close_matches(spellings[-1], table, n=9)
    near = list(dict.fromkeys(table[key][0] for key in alike))[:3]
    hint = f"; near: {', '.join(near)}" if near else ""
    raise UnknownModelError(
        f"the shape of {name} is unknown{hint}. "
        "Name a local folder that holds its config.json, or load it once so that it is cached"
    )


def quantized_bits(name: str) -> int | None:
    """Bits per weight that a model's name promises: 4 of `...-AWQ`, 8 of `...-FP8`."""
    lower = name.lower()
    return next((bits for pattern, bits in _QUANTIZED if pattern.search(lower)), None)


def published() -> Mapping[str, Mapping[str, Any]]:
    """The shipped table: per model its source, the published number of parameters, its sizes."""
    return shipped("models/shapes.json")


def _config_files(name: str, home: Path) -> Iterator[Path]:
    yield Path(name).expanduser() / "config.json"
    hub = os.environ.get("HF_HUB_CACHE")
    hf_home = os.environ.get("HF_HOME")
    cache = Path(hub) if hub else Path(hf_home or home / ".cache" / "huggingface") / "hub"
    snapshots = cache / f"models--{name.replace('/', '--')}" / "snapshots"
    if name and snapshots.is_dir():
        yield from sorted(snapshots.glob("*/config.json"))
    scope = Path(os.environ.get("MODELSCOPE_CACHE") or home / ".cache" / "modelscope" / "hub")
    for folder in (scope / "models" / name, scope / name):
        yield folder / "config.json"


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) and not nests_deeper(config, JSON.depth) else None


@lru_cache(maxsize=1)
def _table() -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    aliases = [
        (_shorter_and_shorter(alias), name, row)
        for name, row in published().items()
        for alias in (name, *row.get("also", ()))
    ]
    table = {spellings[0]: (name, row) for spellings, name, row in aliases}
    for spellings, name, row in aliases:
        for spelling in spellings[1:]:
            table.setdefault(spelling, (name, row))
    return table


def _shorter_and_shorter(name: str) -> list[str]:
    """`Qwen/Qwen2.5-7B-Instruct-AWQ` without its folder, then variant by variant `qwen2.5-7b`."""
    plain = name.rstrip("/").rsplit("/", 1)[-1].lower().replace("_", "-")
    spellings = [plain]
    while (shorter := _VARIANT.sub("", spellings[-1])) != spellings[-1]:
        spellings.append(shorter)
    return spellings
