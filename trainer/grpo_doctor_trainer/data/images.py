"""Images of a dataset: where they are, how they are read, checked before training."""

from __future__ import annotations

import base64
import binascii
import io
import warnings
from pathlib import Path
from typing import Any

from PIL import Image

from grpo_doctor_trainer.errors import DatasetError

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
