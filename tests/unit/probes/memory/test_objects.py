"""Strings, vectors and maps as libstdc++ lays them out, and bytes that are none."""

from __future__ import annotations

import struct

import pytest

from grpo_doctor_probes.memory.cplusplus import NotAnObjectError, Reader


class Memory:
    """Bytes from address 1,000 on."""

    def __init__(self, *parts: tuple[int, bytes]) -> None:
        self.content = bytearray(4096)
        for at, part in parts:
            self.content[at - 1000 : at - 1000 + len(part)] = part

    def read(self, address: int, size: int) -> bytes:
        if not 1000 <= address <= 1000 + len(self.content) - size:
            raise OSError("nothing there")
        return bytes(self.content[address - 1000 : address - 1000 + size])


def reader(*parts: tuple[int, bytes]) -> Reader:
    return Reader(Memory(*parts))  # type: ignore[arg-type]


def words(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def test_what_was_read_before_is_not_read_again() -> None:
    own = Reader(Memory((1000, b"old!old!")), 1000, b"new!")  # type: ignore[arg-type]
    assert own.bytes_at(1000, 4) == b"new!"
    assert own.bytes_at(1002, 2) == b"w!"
    assert own.bytes_at(1001, 4) == b"ld!o"
    assert own.word(1000) == int.from_bytes(b"old!old!", "little")
    with pytest.raises(OSError, match="nothing there"):
        own.bytes_at(999, 2)


@pytest.mark.parametrize(("size", "refused"), [(1 << 16, False), ((1 << 16) + 1, True), (-1, True)])
def test_an_object_has_at_most_64_kib(size: int, refused: bool) -> None:
    with pytest.raises(NotAnObjectError if refused else OSError):
        reader().bytes_at(1000, size)


def test_texts_short_and_long() -> None:
    short = reader((1000, words(1016, 15) + b"fifteen letters"))
    assert short.string(1000) == "fifteen letters"
    with pytest.raises(NotAnObjectError, match="too many bytes"):
        reader((1000, words(1016, 16))).string(1000)
    assert reader((1000, words(2000, 20)), (2000, b"x" * 20)).string(1000) == "x" * 20


def test_vectors() -> None:
    numbers = struct.pack("<3q", 1, -2, 3)
    assert reader((1000, words(2000, 2024, 2024)), (2000, numbers)).vector(1000, "q") == (1, -2, 3)
    assert reader((1000, words(2000, 2000, 2008))).vector(1000, "q") == ()
    for wrong in (words(2008, 2000, 2024), words(2000, 2024, 2023)):
        with pytest.raises(NotAnObjectError, match="ends before"):
            reader((1000, wrong)).vector(1000, "q")
    with pytest.raises(NotAnObjectError, match="part of a number"):
        reader((1000, words(2000, 2025, 2100))).vector(1000, "q")
    small = struct.pack("<QII", 2000, 3, 3)
    assert reader((1000, small), (2000, numbers)).small_vector(1000) == (1, -2, 3)
    with pytest.raises(NotAnObjectError, match="more than it has room"):
        reader((1000, struct.pack("<QII", 2000, 4, 3))).small_vector(1000)


def tree(count: int) -> Reader:
    """A map at 1000 of the nodes 1100 < 1200 < 1300, the middle one on top."""
    return reader(
        (1008, words(0, 1200, 0, 0, count)),
        (1200, words(0, 1008, 1100, 1300)),
        (1100, words(0, 1200, 0, 0)),
        (1300, words(0, 1200, 0, 0)),
    )


def test_maps_are_walked_in_order() -> None:
    assert list(tree(3).nodes(1000)) == [1132, 1232, 1332]
    assert list(reader((1008, words(0, 0, 1008, 1008, 0))).nodes(1000)) == []


def test_memory_of_zeros_is_no_map_and_no_text() -> None:
    with pytest.raises(NotAnObjectError, match="never made"):
        list(reader((1008, words(0, 0, 0, 0, 0))).nodes(1000))
    with pytest.raises(NotAnObjectError, match="nowhere"):
        reader((1000, words(0, 0))).string(1000)


@pytest.mark.parametrize(
    ("count", "words_"),
    [
        (2, "more values"),
        (4, "fewer values"),
        (4096, "fewer values"),
        (4097, "a map of 4097 values"),
    ],
)
def test_a_map_that_does_not_count_is_none(count: int, words_: str) -> None:
    with pytest.raises(NotAnObjectError, match=words_):
        list(tree(count).nodes(1000))


def test_a_map_without_an_end_is_none() -> None:
    circle = reader((1008, words(0, 1100, 0, 0, 2)), (1100, words(0, 0, 1100, 0)))
    with pytest.raises(NotAnObjectError, match="without an end"):
        list(circle.nodes(1000))
