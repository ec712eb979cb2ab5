"""Images of a dataset: finding, reading, refusing and scaling them."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from grpo_doctor_trainer.data.rows import BadImageError, image_sources, probe, read_image, scaled
from grpo_doctor_trainer.errors import DatasetError


def png(size: tuple[int, int] = (6, 4), mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, 1).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.png").write_bytes(png())
    return tmp_path


def test_every_way_of_giving_an_image(folder: Path) -> None:
    content = png()
    url = "data:image/png;base64," + base64.b64encode(content).decode()
    path = folder / "a.png"
    values: list[Any] = [
        "a.png", str(path), f"file://{path}", content, url, ["a.png"],
        {"bytes": content, "path": None}, {"bytes": None, "path": "a.png"}, {"url": url},
    ]  # fmt: skip
    for value in values:
        (source,) = image_sources(value, folder, "rows.jsonl, line 1")
        assert read_image(source, None)[0].size == (6, 4)
    assert image_sources(None, folder, "") == image_sources([], folder, "") == []
    assert len(image_sources([content, "a.png"], folder, "")) == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("https://example.org/a.png", "not downloaded while training runs"),
        ("data:image/png;base64,@@", "a data: URL that is not base64"),
        (3, "an image must be a path"),
        ({"bytes": None, "path": None}, "an image must be a path"),
        ("", "an image must be a path"),
    ],
)
def test_values_that_are_no_image_name_their_place(value: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as error:
        image_sources(value, Path(), "rows.jsonl, line 4")
    assert str(error.value).startswith("rows.jsonl, line 4: ")


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1", "I;16"])
def test_all_modes_become_rgb(mode: str) -> None:
    assert read_image(png(mode=mode), None)[0].mode == "RGB"


def test_damage_has_a_reason(tmp_path: Path) -> None:
    content = png((300, 200))
    for source, reason in (
        (tmp_path / "missing.png", "there is no such file"),
        (tmp_path, "Is a directory"),
        (b"not an image", "not an image, or of a format that Pillow cannot read"),
        (b"", "not an image"),
    ):
        with pytest.raises(BadImageError, match=reason):
            probe(source)
    probe(content[:-40])  # the header is good, and no more is looked at
    with pytest.raises(BadImageError, match="truncated"):
        read_image(content[:-40], None)
    with pytest.raises(BadImageError, match="601 x 2 pixels: one side is more than 200 times"):
        probe(png((601, 2)))
    probe(png((400, 2)))
    probe(png((1, 200)))


@pytest.mark.parametrize("size", [(1000, 500), (333, 777), (1, 5000), (5000, 1), (64, 64)])
@pytest.mark.parametrize("limit", [1, 7, 100, 3136, 50_000])
def test_scaling_keeps_the_shape_below_the_limit(size: tuple[int, int], limit: int) -> None:
    width, height = scaled(size, limit)
    assert 1 <= width * height <= max(1, limit)
    if limit >= 3136 and min(size) > 1:
        assert width / height == pytest.approx(size[0] / size[1], rel=0.05)
        if size[0] * size[1] > limit:
            assert width * height > 0.9 * limit  # and no smaller than it has to be


def test_small_images_are_left_alone() -> None:
    assert scaled((30, 20), 600) == (30, 20)
    assert scaled((30, 20), None) == (30, 20)
    image, decoded = read_image(png((60, 40)), 600)
    assert image.size == (30, 20)
    assert decoded == 60 * 40
