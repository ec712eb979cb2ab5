"""Conversations: brings every way of writing messages and images into the chat template's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.data.images import image_sources
from grpo_doctor_trainer.errors import DatasetError

if TYPE_CHECKING:
    from pathlib import Path

    from grpo_doctor_trainer.data.images import ImageSource

IMAGE_TAG = "<image>"
"""Where an image goes in a text, as ms-swift's datasets write it."""

_IMAGE_KEYS = ("image", "path", "url", "image_url")
_OTHER_KINDS = ("video", "audio", "video_url", "input_audio")


@dataclass(frozen=True)
class Conversation:
    """Messages, and the images of their image parts in order."""

    messages: list[dict[str, Any]]
    images: list[ImageSource]


def conversation(
    value: Any, images: list[ImageSource], folder: Path, location: str
) -> Conversation:
    """Reads a prompt: text, or messages whose content is text or a list of parts.

    Args:
        value: what stands in the prompt column.
        images: of the row's image column. They take the places marked by `<image>` or by a part
            `{"type": "image"}` without an image of its own; without such a place they go before the
            text of the first user message.
        folder: what relative paths may start from.
        location: where the value stands, for messages.

    Raises:
        DatasetError: the value is no conversation, or its places and its images differ in number.
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
        return Conversation([_plain(role, parts) for role, parts in parted], [])
    return _with_images(parted, images, folder, location)


def _with_images(
    parted: list[tuple[str, list[dict[str, Any]]]],
    images: list[ImageSource],
    folder: Path,
    location: str,
) -> Conversation:
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
    return Conversation([{"role": role, "content": parts} for role, parts in split], filled)


def _parts(content: str | list[dict[str, Any]], location: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part, location) for part in content]


def _part(part: dict[str, Any], location: str) -> dict[str, Any]:
    kind = part.get("type") or ("text" if isinstance(part.get("text"), str) else None)
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind in ("image", "image_url"):
        source = next((part[key] for key in _IMAGE_KEYS if part.get(key)), None)
        return {"type": "image"} | ({} if source is None else {"source": source})
    reason = f"{kind} cannot be trained on here" if kind in _OTHER_KINDS else f"not {part!r:.60}"
    raise DatasetError(f"{location}: a part of a message must be text or an image; {reason}")


def _split(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Cuts a text at its `<image>` tags."""
    if part["type"] != "text":
        return [part]
    parts: list[dict[str, Any]] = []
    for number, text in enumerate(part["text"].split(IMAGE_TAG)):
        if number:
            parts.append({"type": "image"})
        if text:
            parts.append({"type": "text", "text": text})
    return parts


def _plain(role: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": role, "content": "".join(part["text"] for part in parts)}


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("role"), str):
        return False
    content = value.get("content")
    if isinstance(content, list):
        return bool(content) and all(isinstance(part, dict) for part in content)
    return isinstance(content, str)
