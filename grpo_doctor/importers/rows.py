"""A step's metrics as one row: printed as a dictionary or JSON, or as a line of a table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from grpo_doctor.importers.text import NUMBER

# Newer versions of transformers print numbers as text; JSON has double quotes.
_PAIR = re.compile(rf"""(['"])([^'"{{}}]+)\1: ?['"]?{NUMBER}\)?['"]?(?=\s*[,}}])""")
_TEXT = re.compile(r"""(['"])(global_step/max_steps|elapsed_time)\1: ?['"]([^'"]+)['"]""")
_GAP = re.compile(r"\s{0,99}\|\s*|\t+|\s{2,}")
_SLASH = re.compile(r"\s{0,9}/\s{0,9}")
_RULE = re.compile(r"[\s|:-]+")
_CELL = re.compile(r"<t([hd])[^<>]*>([^<]*)</t[hd]>")
_NAMES = {"Training Loss": "loss", "Validation Loss": "eval_loss", "Step": "step"}
# Names of a step's number; wandb's rows have a prefix of their own.
_STEPS = ("step", "global_step", "_step")
_PREFIX = "train/"
# What only a run that has rewards logs.
_OF_REWARDS = re.compile(
    r"reward|rewards/.+|completions?[/_](?:mean_)?length|critic/(?:score|rewards)/mean"
    r"|rollout/reward_mean|response_length/mean"
)
# The row that the trainer adds at its end is of the whole run.
RUN_TIME = "train_runtime"


def dictionary(line: str) -> dict[str, Any]:
    """Return the numbers of a row that a line holds, with ms-swift's texts of progress and time."""
    row: dict[str, Any] = {
        key.removeprefix(_PREFIX): float(value) for _, key, value in _PAIR.findall(line)
    }
    return row | {key: value for _, key, value in _TEXT.findall(line)} if row else {}


def of_rewards(row: Mapping[str, Any]) -> bool:
    """Return whether a row is of a run that has rewards."""
    return len(row) > 1 and any(_OF_REWARDS.fullmatch(key) for key in row)


def is_row(row: Mapping[str, Any]) -> bool:
    """Return whether this is a row of a trainer's log, and no other dictionary."""
    return (
        of_rewards(row)
        or "loss" in row
        or RUN_TIME in row
        or any(key.startswith("eval_") for key in row)
    )


def step_of(row: dict[str, Any]) -> int | None:
    """Return the number of the step, taken out of the row; None where it has none."""
    progress, _, _ = str(row.get("global_step/max_steps", "")).partition("/")
    if progress.isdecimal():
        return int(progress)
    numbers = [row.pop(name) for name in _STEPS if name in row]
    return int(numbers[0]) if numbers and numbers[0] == numbers[0] // 1 else None


class Table:
    """A table of steps, line by line: Markdown, what a notebook shows, or HTML of one."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._cells: list[str] = []
        self._heading = False

    def read(self, line: str) -> dict[str, Any]:
        """Return the row that ends with this line; empty for any other line."""
        if tags := _CELL.findall(line):
            self._cells += [text.strip() for _, text in tags]
            self._heading = tags[-1][0] == "h"
        if "</tr>" in line:
            cells, self._cells = self._cells, []
            return self._row(cells)
        if tags or not _GAP.search(line.strip()) or _RULE.fullmatch(line):
            return {}
        return self._row(_GAP.split(line.strip().strip("|").strip()))

    def _row(self, cells: list[str]) -> dict[str, Any]:
        names = [_NAMES.get(cell, _SLASH.sub("/", cell)) for cell in cells]
        if "step" in names and len(names) > 1:
            self._names = names
            return {}
        if len(cells) != len(self._names):
            return {}
        pairs = zip(self._names, cells, strict=True)
        found = {name: re.fullmatch(NUMBER, cell) for name, cell in pairs}
        if found["step"] is None:
            return {}
        return {name: float(match[1]) for name, match in found.items() if match}
