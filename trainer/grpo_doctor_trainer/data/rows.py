"""Reads datasets into rows of a prompt and the columns that rewards ask for."""

from __future__ import annotations

import dataclasses
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.data.images import image_sources
from grpo_doctor_trainer.data.messages import Conversation, conversation
from grpo_doctor_trainer.errors import DatasetError
from grpo_doctor_trainer.tasks import squares, sums

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.data.images import ImageSource

_LOCAL_KINDS = (".jsonl", ".json", ".parquet")
_PROMPT_COLUMNS = ("prompt", "messages")
_IMAGE_COLUMNS = ("images", "image")


@dataclass(frozen=True)
class Row:
    """One prompt.

    Attributes:
        messages: the conversation so far, as `{"role", "content"}`; with images the content is a
            list of `{"type": "text", "text"}` and `{"type": "image"}`.
        columns: every other column of the dataset, for the rewards.
        images: one per part of that kind, in order.
        location: file and line, for messages.
    """

    messages: list[dict[str, Any]]
    columns: dict[str, Any] = field(default_factory=dict)
    images: tuple[ImageSource, ...] = ()
    location: str = field(default="", compare=False)


def load_rows(names: list[str], seed: int, *, with_images: bool = False) -> list[Row]:
    """Reads and joins datasets; without any, makes the arithmetic task.

    Args:
        names: file paths or Hugging Face names, each with an optional `#N`: sample N rows.
        seed: of that sampling.
        with_images: without a dataset, whether to make the task with images.

    Raises:
        DatasetError: names the file, and the line and column where there is one.
    """
    if not names:
        generated = squares() if with_images else sums()
        return [_row(raw, f"generated row {n}", Path()) for n, raw in enumerate(generated, start=1)]
    rows = [row for name in names for row in _sampled(name, seed)]
    every_column = dict.fromkeys(column for row in rows for column in row.columns)
    return [
        dataclasses.replace(row, columns=dict.fromkeys(every_column) | row.columns) for row in rows
    ]


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
        raws = _read_table(source)
    elif not path.is_file():
        raise DatasetError(f"--dataset {source}: there is no such file")
    elif path.suffix == ".jsonl":
        raws = _read_jsonl(path)
    elif path.suffix == ".json":
        raws = _read_json(path)
    else:
        raws = _read_table(str(path))
    empty = True
    for location, raw in raws:
        empty = False
        yield _row(raw, location, path.parent)
    if empty:
        raise DatasetError(f"--dataset {source} has no rows")


def _read_jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                location = f"{path}, line {number}"
                yield location, _parse_json(line, location)


def _read_json(path: Path) -> Iterator[tuple[str, Any]]:
    rows = _parse_json(path.read_bytes(), str(path))
    if not isinstance(rows, list):
        raise DatasetError(
            f"{path} must hold a list of rows, not {_kind(rows)}; one row per line is .jsonl"
        )
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", row


def _parse_json(content: bytes, location: str) -> Any:
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DatasetError(f"{location}: not UTF-8 text (byte {error.start + 1})") from None
    except json.JSONDecodeError as error:
        raise DatasetError(f"{location}: not JSON ({error.msg} at column {error.colno})") from None


def _read_table(source: str) -> Iterator[tuple[str, Any]]:
    from datasets import load_dataset  # noqa: PLC0415 - a second of imports that jsonl does not need

    is_file = Path(source).suffix == ".parquet"
    name, options = ("parquet", {"data_files": source}) if is_file else (source, {})
    try:
        table = load_dataset(name, split="train", **options)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if is_file:
            raise DatasetError(f"{source} cannot be read as parquet: {reason}") from error
        raise DatasetError(
            f"--dataset {source}: no such file, and Hugging Face gave no train split "
            f"({reason}). Check the name, or give a local .jsonl file."
        ) from error
    for number, row in enumerate(_undecoded(table), start=1):
        yield f"{source}, row {number}", row


def _undecoded(table: Any) -> Any:
    """Leaves images as bytes or paths: decoded, the whole dataset would be in memory."""
    from datasets import Image, Sequence  # noqa: PLC0415 - imported already

    for name, feature in table.features.items():
        if isinstance(feature, Image):
            table = table.cast_column(name, Image(decode=False))
        elif isinstance(getattr(feature, "feature", None), Image):
            table = table.cast_column(name, Sequence(Image(decode=False)))
    return table


def _row(raw: Any, location: str, folder: Path) -> Row:
    if not isinstance(raw, dict):
        raise DatasetError(
            f"{location}: a row must be an object with a prompt column, not {_kind(raw)}"
        )
    column = next((name for name in _PROMPT_COLUMNS if raw.get(name) is not None), None)
    if column is None:
        raise DatasetError(
            f"{location}: there is no column prompt or messages; "
            f"columns here: {', '.join(raw) or 'none'}"
        )
    images = next((name for name in _IMAGE_COLUMNS if raw.get(name) is not None), "")
    spoken: Conversation = conversation(
        raw[column],
        image_sources(raw.get(images), folder, f"{location}, column {images}"),
        folder,
        f"{location}, column {column}",
    )
    used = (*_PROMPT_COLUMNS, *_IMAGE_COLUMNS)
    columns = {name: value for name, value in raw.items() if name not in used}
    return Row(spoken.messages, columns, tuple(spoken.images), location)


def _kind(value: Any) -> str:
    return {list: "a list", str: "text", dict: "an object", type(None): "null"}.get(
        type(value), f"a {type(value).__name__}"
    )
