"""Static objects of functions, found in code as compilers write it; and what is no such code."""

from __future__ import annotations

import ctypes
import platform
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from grpo_doctor_probes.memory.statics import static_pointer

HERE, CALLED, GUARD = 0x10000, 0x18000, 0x40000


class Bytes:
    """Memory with some parts."""

    def __init__(self, contents: dict[int, bytes]) -> None:
        self._parts = contents

    def read(self, address: int, size: int) -> bytes:
        if address not in self._parts:
            raise OSError("nothing there")
        return self._parts[address].ljust(size, b"\x90")


def relative(at: int, target: int) -> bytes:
    return struct.pack("<i", target - at - 4)


def getter(start: int, guard: int = GUARD, pointer: int = GUARD + 8) -> bytes:
    """`movzbl guard; test %al, %al; je ...; mov pointer, %rax; ret`."""
    code = b"\x0f\xb6\x05" + relative(start + 3, guard) + b"\x84\xc0\x74\x0d\x48\x8b\x05"
    return code + relative(start + len(code), pointer) + b"\xc3"


def guard_in(contents: dict[int, bytes], machine: str = "x86_64") -> int | None:
    return static_pointer(Bytes(contents), HERE, machine)


CALL, FIRST = b"\x55\xe8" + relative(HERE + 2, CALLED), b"\xe8" + relative(HERE + 1, CALLED)


@pytest.mark.parametrize(
    ("code", "called", "guard"),
    [
        (b"\x41\x57" * 8 + getter(HERE + 16), None, GUARD),  # in the function itself
        (CALL, getter(CALLED), GUARD),
        (FIRST, getter(CALLED), GUARD),
        (b"\x48\xe8\x00\x00\x00\x01" + CALL[1:], getter(CALLED), None),
        (CALL, None, None),
        (getter(HERE, pointer=GUARD + 24), None, None),  # a load of something else
        (b"\xc3", None, None),
    ],
)
def test_in_code_of_x86_64(code: bytes, called: bytes | None, guard: int | None) -> None:
    assert guard_in({HERE: code, **({} if called is None else {CALLED: called})}) == guard


# In the words of aarch64: code of `FlightRecorder::get` as it is in torch's wheels.
ADRP, ADD, LDAR, LDARB, LDR, BL = (
    0x90000000, 0x91000000, 0xC8DFFC00, 0x08DFFC00, 0xF9400000, 0x94000000
)  # fmt: skip


def arm(*instructions: int) -> bytes:
    return struct.pack(f"<{len(instructions)}I", *instructions)


def adrp(register: int, pages: int) -> int:
    pages &= 0x1FFFFF
    return ADRP | (pages & 3) << 29 | (pages >> 2) << 5 | register


def arm_getter(pages: int, load: int = LDAR, pointer: int = 0x6D8, between: int = 0) -> bytes:
    """A guard at 0x6d0 of a page so far away, and a pointer."""
    found = [adrp(20, pages), ADD | 0x6D0 << 10 | 20 << 5, load | 1, adrp(19, pages)]
    return arm(*found, *([between] if between else []), LDR | (pointer // 8) << 10 | 19 << 5)


@pytest.mark.parametrize(
    ("code", "guard"),
    [
        (arm_getter(0x30), HERE + 0x306D0),
        (arm_getter(-8), HERE - 0x8000 + 0x6D0),
        (arm_getter(0x30, LDARB), HERE + 0x306D0),
        (arm_getter(0x30, pointer=0x6E0), None),
        (arm_getter(0x30, load=LDR), None),  # read without acquire semantics: no guard
        (arm_getter(0x30, between=BL | 4), HERE + 0x306D0),  # a call keeps registers from 19 on
        (arm(adrp(0, 0x30), BL | 4) + arm_getter(0x30)[4:8] + arm(LDAR | 1), None),
        (b"", None),
    ],
)
def test_in_code_of_arm(code: bytes, guard: int | None) -> None:
    assert guard_in({HERE: code}, "aarch64") == guard


SOURCE = """
struct Thing { int number; Thing(); };
Thing::Thing() : number(7) {}
extern "C" Thing *get() { static Thing *instance = new Thing(); return instance; }
"""


def test_in_what_the_compiler_makes(tmp_path: Path) -> None:
    if shutil.which("g++") is None or platform.machine() != "x86_64":
        pytest.skip("needs g++ for x86-64")
    (tmp_path / "thing.cpp").write_text(SOURCE)
    built = tmp_path / "thing.so"
    command = ["g++", "-shared", "-fPIC", "-O2", "-o", str(built), str(tmp_path / "thing.cpp")]
    subprocess.run(command, check=True)
    get = ctypes.CDLL(str(built)).get
    get.restype = ctypes.c_void_p
    address = ctypes.cast(get, ctypes.c_void_p).value
    assert address

    class Own:
        def read(self, at: int, size: int) -> bytes:
            return ctypes.string_at(at, size)

    guard = static_pointer(Own(), address, "x86_64")
    assert guard
    assert ctypes.string_at(guard, 1) == b"\0"
    made = get()
    assert struct.unpack("<B7xQ", ctypes.string_at(guard, 16)) == (1, made)


@pytest.mark.parametrize("back", [False, True])
def test_in_a_function_that_code_of_arm_calls(back: bool) -> None:
    called = HERE - 0x8000 if back else CALLED
    call = BL | ((called - HERE - 4) // 4 & 0x3FFFFFF)
    parts = {HERE: arm(0xD503201F, call), called: arm_getter(2)}
    assert guard_in(parts, "aarch64") == called + 0x2000 + 0x6D0
