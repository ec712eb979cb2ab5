"""Reads datasets into rows of a prompt and the columns that rewards ask for."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import DatasetError
from grpo_doctor_trainer.tasks.arithmetic import sums

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCAL_KINDS = (".jsonl", ".json", ".parquet")
_PROMPT_COLUMNS = ("prompt", "messages")


@dataclass(frozen=True)
class Row:
    """One prompt.

    Attributes:
        messages: the conversation so far, as `{"role", "content"}`.
        columns: every other column of the dataset, for the rewards.
    """

    messages: list[dict[str, str]]
    columns: dict[str, Any] = field(default_factory=dict)


def load_rows(names: list[str], seed: int) -> list[Row]:
    """Reads and joins datasets; without any, makes the arithmetic task.

    Args:
        names: file paths or Hugging Face names, each with an optional `#N`: sample N rows.
        seed: of that sampling.

    Raises:
        DatasetError: names the file, and the line and column where there is one.
    """
    if not names:
        return [_row(raw, "arithmetic") for raw in sums()]
    rows = [row for name in names for row in _sampled(name, seed)]
    every_column = dict.fromkeys(column for row in rows for column in row.columns)
    return [Row(row.messages, dict.fromkeys(every_column) | row.columns) for row in rows]


def _sampled(name: str, seed: int) -> list[Row]:
    source, mark, count = name.rpartition("#")
    if not mark:
        return list(_read(name))
    if not count.isdigit() or int(count) < 1:
        raise DatasetError(
            f"--dataset {name}: what follows # must be a number of rows, as in {source}#500"
        )
    rows = list(_read(source))
    if int(count) >= len(rows):
        return rows
    return random.Random(seed).sample(rows, int(count))  # noqa: S311 - no secret


def _read(source: str) -> Iterator[Row]:
    path = Path(source)
    if path.suffix not in _LOCAL_KINDS:
        if path.exists():
            raise DatasetError(
                f"--dataset {source}: only {', '.join(_LOCAL_KINDS)} files can be read"
            )
        raws = _read_hub(source)
    elif not path.is_file():
        raise DatasetError(f"--dataset {source}: there is no such file")
    elif path.suffix == ".jsonl":
        raws = _read_jsonl(path)
    elif path.suffix == ".json":
        raws = _read_json(path)
    else:
        raws = _read_parquet(path)
    empty = True
    for place, raw in raws:
        empty = False
        yield _row(raw, place)
    if empty:
        raise DatasetError(f"--dataset {source} has no rows")


def _read_jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                place = f"{path}, line {number}"
                yield place, _parse_json(line, place)


def _read_json(path: Path) -> Iterator[tuple[str, Any]]:
    rows = _parse_json(path.read_bytes(), str(path))
    if not isinstance(rows, list):
        raise DatasetError(
            f"{path} must hold a list of rows, not {_kind(rows)}; one row per line is .jsonl"
        )
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", row


def _parse_json(content: bytes, place: str) -> Any:
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DatasetError(f"{place}: not UTF-8 text (byte {error.start + 1})") from None
    except json.JSONDecodeError as error:
        raise DatasetError(f"{place}: not JSON ({error.msg} at column {error.colno})") from None


def _read_parquet(path: Path) -> Iterator[tuple[str, Any]]:
    from datasets import load_dataset  # noqa: PLC0415 - a second of imports that jsonl does not need

    try:
        table = load_dataset("parquet", data_files=str(path), split="train")
    except Exception as error:
        raise DatasetError(f"{path} cannot be read as parquet: {_first_line(error)}") from error
    for number, row in enumerate(table, start=1):
        yield f"{path}, row {number}", row


def _read_hub(name: str) -> Iterator[tuple[str, Any]]:
    from datasets import load_dataset  # noqa: PLC0415 - a second of imports that jsonl does not need

    try:
        table = load_dataset(name, split="train")
    except Exception as error:
        raise DatasetError(
            f"--dataset {name}: no such file, and Hugging Face gave no train split "
            f"({_first_line(error)}). Check the name, or give a local .jsonl file."
        ) from error
    for number, row in enumerate(table, start=1):
        yield f"{name}, row {number}", row


def _row(raw: Any, place: str) -> Row:
    if not isinstance(raw, dict):
        raise DatasetError(
            f"{place}: a row must be an object with a prompt column, not {_kind(raw)}"
        )
    column = next((name for name in _PROMPT_COLUMNS if raw.get(name) is not None), None)
    if column is None:
        raise DatasetError(
            f"{place}: there is no column prompt or messages; "
            f"columns here: {', '.join(raw) or 'none'}"
        )
    others = {name: value for name, value in raw.items() if name not in _PROMPT_COLUMNS}
    return Row(_messages(raw[column], f"{place}, column {column}"), others)


def _messages(value: Any, place: str) -> list[dict[str, str]]:
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not isinstance(value, list) or not all(_is_message(message) for message in value):
        raise DatasetError(f'{place}: must be text, or a list of {{"role": ..., "content": ...}}')
    # A last answer is the reference of supervised training: here the model has to give it.
    while value and value[-1]["role"] == "assistant":
        value = value[:-1]
    if not value:
        raise DatasetError(f"{place}: there is no message to answer")
    return [{"role": message["role"], "content": message["content"]} for message in value]


def _is_message(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and isinstance(value.get("content"), str)
    )


def _kind(value: Any) -> str:
    return {list: "a list", str: "text", dict: "an object", type(None): "null"}.get(
        type(value), f"a {type(value).__name__}"
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
