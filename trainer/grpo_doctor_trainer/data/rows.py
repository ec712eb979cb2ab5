"""Reads datasets into rows: a conversation, its images, and the columns that rewards ask for.

The header of every image is read before training.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import io
import json
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from grpo_doctor_trainer.errors import DatasetError
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.ranks import Ranks, sum_over_ranks
from grpo_doctor_trainer.tasks import squares, sums

ImageSource = Path | bytes
"""A file, or the content of one."""

_DATA_URL, _REMOTE, _FILE_URL = "data:", ("http://", "https://"), "file://"
_LARGEST_ASPECT = 200  # what Qwen2-VL's image processors take


class BadImageError(Exception):
    """An image that cannot be read; says why, without saying which one."""


def image_sources(value: Any, folder: Path, location: str) -> list[ImageSource]:
    """Find the images that a column, or a part of a message, names."""
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [source for item in value for source in image_sources(item, folder, location)]
    if isinstance(value, bytes | bytearray):
        return [bytes(value)]
    if isinstance(value, dict):
        inner = next((value[key] for key in ("bytes", "path", "url") if value.get(key)), None)
        if inner is not None:
            return image_sources(inner, folder, location)
    if isinstance(value, str) and value:
        return [_from_text(value, folder, location)]
    raise DatasetError(
        f"{location}: an image must be a path, a data: URL, bytes, or an object with bytes or "
        f"path, not {str(value)[:60]!r}"
    )


def _from_text(value: str, folder: Path, location: str) -> ImageSource:
    if value.startswith(_REMOTE):
        raise DatasetError(
            f"{location}: images are not downloaded while training runs ({value[:80]}); download "
            "them first and write their paths, relative to the dataset's file or whole"
        )
    if value.startswith(_DATA_URL):
        try:
            return base64.b64decode(value.partition(",")[2], validate=True)
        except binascii.Error as error:
            raise DatasetError(f"{location}: a data: URL that is not base64 ({error})") from None
    path = Path(value.removeprefix(_FILE_URL)).expanduser()
    relative = folder / path
    return relative if relative.exists() else path


def source_name(source: ImageSource) -> str:
    """Name an image for a message."""
    return f"{len(source)} bytes in the dataset" if isinstance(source, bytes) else str(source)


def probe(source: ImageSource) -> None:
    """Read an image's header only: a few hundred bytes."""
    with _opened(source) as image:
        sides = image.size
    if max(sides) > _LARGEST_ASPECT * min(sides):
        raise BadImageError(
            f"{sides[0]} x {sides[1]} pixels: one side is more than {_LARGEST_ASPECT} times the "
            "other, which vision towers do not take"
        )


def read_image(source: ImageSource, max_pixels: int | None) -> tuple[Image.Image, int]:
    """Decode an image to RGB, and scale it down to an area of `max_pixels` at most.

    Returns:
        the image, and the number of pixels that were decoded for it.
    """
    with _opened(source) as opened:
        try:
            image = opened.convert("RGB")
        except (OSError, ValueError, SyntaxError, MemoryError) as error:
            raise BadImageError(_reason(error)) from error
    decoded = image.width * image.height
    size = scaled(image.size, max_pixels)
    if size != image.size:
        image = image.resize(size, Image.Resampling.BICUBIC)
    return image, decoded


def scaled(size: tuple[int, int], max_pixels: int | None) -> tuple[int, int]:
    """Return the largest size of the same shape, to a pixel, whose area is at most `max_pixels`."""
    width, height = size
    if max_pixels is None or width * height <= max_pixels:
        return size
    factor = (max_pixels / (width * height)) ** 0.5
    new_width = min(max_pixels, max(1, int(width * factor)))
    new_height = max(1, min(int(height * factor), max_pixels // new_width))
    return new_width, new_height


def _opened(source: ImageSource) -> Image.Image:
    try:
        with warnings.catch_warnings():
            # Of images with more than 89 million pixels; above 179 million PIL refuses them.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadImageError(_reason(error)) from error


def _reason(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, Image.UnidentifiedImageError):
        return "not an image, or of a format that Pillow cannot read"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


IMAGE_TAG = "<image>"
"""Where an image goes in a text, as ms-swift's datasets write it."""

_IMAGE_KEYS = ("image", "path", "url", "image_url")
_OTHER_KINDS = ("video", "audio", "video_url", "input_audio")

_LOCAL_KINDS = (".jsonl", ".json", ".parquet")
_PROMPT_COLUMNS = ("prompt", "messages")
_IMAGE_COLUMNS = ("images", "image")
_READERS = 8  # a header is a few hundred bytes, so on a network disk this is waiting


def conversation(
    value: Any, images: list[ImageSource], folder: Path, location: str
) -> tuple[list[dict[str, Any]], list[ImageSource]]:
    """Read a prompt: text, or messages whose content is text or a list of parts.

    `images` of the row's image column take the places marked by `<image>` or by a part
    `{"type": "image"}` without an image of its own; without such a place they go before the text of
    the first user message. Returns the messages, and their images in order.
    """
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not isinstance(value, list) or not all(_is_message(message) for message in value):
        raise DatasetError(
            f'{location}: must be text, or a list of {{"role": ..., "content": ...}}'
        )
    # A last answer is the reference of supervised training: here the model has to give it.
    while value and value[-1]["role"] == "assistant":
        value = value[:-1]
    if not value:
        raise DatasetError(f"{location}: there is no message to answer")
    parted = [(message["role"], _parts(message["content"], location)) for message in value]
    every = [part for _, parts in parted for part in parts]
    if not images and not any("source" in part for part in every):
        if any(part["type"] == "image" for part in every):
            raise DatasetError(f"{location}: a part asks for an image, and the row has no images")
        texts = ((role, "".join(part["text"] for part in parts)) for role, parts in parted)
        return [{"role": role, "content": text} for role, text in texts], []
    return _with_images(parted, images, folder, location)


def _with_images(
    parted: list[tuple[str, list[dict[str, Any]]]],
    images: list[ImageSource],
    folder: Path,
    location: str,
) -> tuple[list[dict[str, Any]], list[ImageSource]]:
    split = [(role, [piece for part in parts for piece in _split(part)]) for role, parts in parted]
    places = [piece for _, parts in split for piece in parts if piece["type"] == "image"]
    if not places:
        first = next((n for n, (role, _) in enumerate(split) if role == "user"), 0)
        places = [{"type": "image"} for _ in images]
        split[first][1][:0] = places
    remaining, filled = list(images), []
    unfilled = sum("source" not in piece for piece in places)
    if unfilled != len(images):
        raise DatasetError(
            f"{location}: {unfilled} places for images ({IMAGE_TAG} or parts of type image), and "
            f"{len(images)} images in the row's image column"
        )
    for piece in places:
        own = piece.pop("source", None)
        filled += [remaining.pop(0)] if own is None else image_sources(own, folder, location)
    return [{"role": role, "content": parts} for role, parts in split], filled


def _parts(content: str | list[dict[str, Any]], location: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part, location) for part in content]


def _part(part: dict[str, Any], location: str) -> dict[str, Any]:
    is_text = isinstance(part.get("text"), str)
    kind = part.get("type") or ("text" if is_text else None)
    if kind == "text" and is_text:
        return {"type": "text", "text": part["text"]}
    if kind in {"image", "image_url"}:
        source = next((part[key] for key in _IMAGE_KEYS if part.get(key)), None)
        return {"type": "image"} | ({} if source is None else {"source": source})
    reason = f"{kind} cannot be trained on here" if kind in _OTHER_KINDS else f"not {part!r:.60}"
    raise DatasetError(f"{location}: a part of a message must be text or an image; {reason}")


def _split(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Cut a text at its `<image>` tags."""
    if part["type"] != "text":
        return [part]
    pieces = re.split(f"({IMAGE_TAG})", part["text"])
    return [
        {"type": "image"} if piece == IMAGE_TAG else {"type": "text", "text": piece}
        for piece in pieces
        if piece
    ]


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    content = value.get("content")
    if isinstance(content, list):
        return bool(content) and all(isinstance(part, dict) for part in content)
    return isinstance(content, str)


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


def load_rows(names: list[str], *, with_images: bool = False) -> list[Row]:
    """Read and join datasets; without any, make the arithmetic task."""
    if not names:
        generated = squares() if with_images else sums()
        return [_row(raw, f"generated row {n}", Path()) for n, raw in enumerate(generated, start=1)]
    rows = [row for name in names for row in _read(name)]
    every_column = dict.fromkeys(column for row in rows for column in row.columns)
    return [
        dataclasses.replace(row, columns=dict.fromkeys(every_column) | row.columns) for row in rows
    ]


def _read(source: str) -> Iterator[Row]:
    path, empty = Path(source), True
    if re.search(r"#\d+$", source):
        raise DatasetError(f"--dataset {source}: #N is gone; give a file with the rows you want")
    if path.exists() and path.suffix not in _LOCAL_KINDS:
        raise DatasetError(f"--dataset {source}: only {', '.join(_LOCAL_KINDS)} files can be read")
    if path.suffix in _LOCAL_KINDS and not path.is_file():
        raise DatasetError(f"--dataset {source}: there is no such file")
    is_json = path.suffix in {".jsonl", ".json"}
    for location, raw in _read_json(path) if is_json else _read_table(source):
        empty = False
        yield _row(raw, location, path.parent)
    if empty:
        raise DatasetError(f"--dataset {source} has no rows")


def _read_json(path: Path) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".json":
        rows = _parse_json(path.read_bytes(), str(path))
        if not isinstance(rows, list):
            raise DatasetError(
                f"{path} must hold a list of rows, not {_kind(rows)}; one row per line is .jsonl"
            )
        yield from ((f"{path}, row {number}", row) for number, row in enumerate(rows, start=1))
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                location = f"{path}, line {number}"
                yield location, _parse_json(line, location)


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
    """Leave images as bytes or paths: decoded, the whole dataset would be in memory."""
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
    messages, found = conversation(
        raw[column],
        image_sources(raw.get(images), folder, f"{location}, column {images}"),
        folder,
        f"{location}, column {column}",
    )
    used = (*_PROMPT_COLUMNS, *_IMAGE_COLUMNS)
    columns = {name: value for name, value in raw.items() if name not in used}
    return Row(messages, columns, tuple(found), location)


def _kind(value: Any) -> str:
    return {list: "a list", str: "text", dict: "an object", type(None): "null"}.get(
        type(value), f"a {type(value).__name__}"
    )


def check_images(rows: list[Row], ranks: Ranks) -> None:
    """Read the header of every image before training, each rank its share; collective."""
    if not any(row.images for row in rows):
        return
    with phase("init/images"), ThreadPoolExecutor(_READERS) as pool:
        share = rows[ranks.rank :: ranks.world_size]
        problems = [text for text in pool.map(problem, share) if text]
    count = float(sum_over_ranks(torch.tensor([len(problems)], device=ranks.device), ranks)[0])
    if count:
        first = problems[0] if problems else "another rank names an image that cannot be read"
        more = f"; {count - 1:.0f} more rows have such an image" if count > 1 else ""
        raise DatasetError(f"{first}{more}. Fix it, or remove such rows from the dataset")


def problem(row: Row) -> str | None:
    """Say which image of a row cannot be read, and why; none if all can."""
    for number, source in enumerate(row.images, start=1):
        try:
            probe(source)
        except BadImageError as error:
            return describe_image(row, number, str(error))
    return None


def describe_image(row: Row, number: int, reason: str) -> str:
    """Name a bad image: its row, which of the row's images it is, its file, and the reason."""
    return (
        f"{row.location}: image {number} of {len(row.images)} "
        f"({source_name(row.images[number - 1])}): {reason}"
    )
