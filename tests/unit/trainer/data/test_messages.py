"""Conversations with images, in the ways that datasets write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_trainer.data.rows import ImageSource, conversation
from grpo_doctor_trainer.errors import DatasetError

A, B = Path("a.png"), Path("b.png")
IMAGE = {"type": "image"}


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def read(value: Any, *images: ImageSource) -> tuple[list[Any], list[Any]]:
    messages, found = conversation(
        value, list(images), Path("nowhere"), "rows.jsonl, line 2, column messages"
    )
    return [message["content"] for message in messages], found


def test_without_images_content_stays_text() -> None:
    assert read("What is <image>?") == (["What is <image>?"], [])
    assert read([{"role": "user", "content": [text("a"), text("b")]}]) == (["ab"], [])


def test_images_without_a_place_go_before_the_first_user_text() -> None:
    system = {"role": "system", "content": "Short."}
    user = {"role": "user", "content": "Which?"}
    contents, images = read([system, user], A, B)
    assert contents == [[text("Short.")], [IMAGE, IMAGE, text("Which?")]]
    assert images == [A, B]


def test_tags_in_the_text_are_places() -> None:
    assert read("<image>and <image>?", A, B) == ([[IMAGE, text("and "), IMAGE, text("?")]], [A, B])


def test_parts_bring_their_own_images_or_take_the_columns() -> None:
    own = {"type": "image", "image": "b.png", "text": None}
    url = {"type": "image_url", "image_url": {"url": "a.png"}}
    empty = {"type": "image", "image": None}
    message = {"role": "user", "content": [empty, text("x"), own, url]}
    contents, images = read([message], A)
    assert contents == [[IMAGE, text("x"), IMAGE, IMAGE]]
    assert images == [A, B, A]


def test_a_tag_before_a_part_with_its_own_image_keeps_the_order() -> None:
    content = [text("<image>"), {"type": "image", "image": "b.png"}]
    assert read([{"role": "user", "content": content}], A)[1] == [A, B]


@pytest.mark.parametrize(
    ("value", "images", "message"),
    [
        ("<image><image>", [A], "2 places for images .* and 1 images in the row's image column"),
        ("<image>", [A, B], "1 places for images"),
        ([{"role": "user", "content": [IMAGE]}], [], "asks for an image, and the row has no"),
        ([{"role": "user", "content": [{"type": "video", "video": "a.mp4"}]}], [A], "video cannot"),
        ([{"role": "user", "content": [{"kind": 3}]}], [], "must be text or an image; not {'kind'"),
        ([{"role": "user", "content": [{"type": "text"}]}], [], "text or an image; not {'t"),
        ([{"role": "user", "content": [{"type": "audio", "text": "a"}]}], [], "audio cannot"),
        ([{"role": "user", "content": []}], [], "must be text, or a list of"),
        ([{"role": "user", "content": ["a"]}], [], "must be text, or a list of"),
        ([{"role": 3, "content": "a"}], [], "must be text, or a list of"),
        ([{"content": "a"}], [], "must be text, or a list of"),
        (["a"], [], "must be text, or a list of"),
        ([{"role": "user", "content": "a"}, "b"], [], "must be text, or a list of"),
        ([{"role": "user", "content": [{"type": "image", "image": "http://a/b.png"}]}], [],
         "not downloaded"),
    ],
)  # fmt: skip
def test_mistakes_name_their_place(value: Any, images: list[Path], message: str) -> None:
    with pytest.raises(DatasetError, match=message) as error:
        read(value, *images)
    assert str(error.value).startswith("rows.jsonl, line 2, column messages: ")


def test_without_a_user_images_go_before_the_first_message() -> None:
    messages = [{"role": "system", "content": "Short."}, {"role": "tool", "content": "x"}]
    assert read(messages, A) == ([[IMAGE, text("Short.")], [text("x")]], [A])


def test_answers_at_the_end_are_left_to_the_model_and_those_between_stay() -> None:
    user, answer = ({"role": role, "content": role[0]} for role in ("user", "assistant"))
    assert read([user, answer, user, answer, answer]) == (["u", "a", "u"], [])
