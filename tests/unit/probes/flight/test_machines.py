"""How a call is set up on each processor, against the kernel's own layouts.

On the other processor than this machine's nothing is run: what is checked is the bytes.
"""

from __future__ import annotations

import struct

import pytest

from grpo_doctor_probes.flight.aarch64 import Aarch64
from grpo_doctor_probes.flight.machine import SCRATCH_BYTES, Call, Saved
from grpo_doctor_probes.flight.x86_64 import X8664

STACK = 0x7FFF_0000_1238
RETURN_TO = 0x7F00_0000_0100
BARE = 0x7F22_0000_0300
FUNCTION = 0x7F11_0000_0200
MINUS = 1 << 64


def x86(rax: int, orig_rax: int) -> bytes:
    """Registers with recognisable values, as user_regs_struct."""
    values = list(range(1000, 1027))
    values[10], values[15], values[16], values[19] = rax % MINUS, orig_rax % MINUS, 0x5005, STACK
    values[18] = 0x400 | 0x246  # flags, the direction flag among them
    return struct.pack("<27Q", *values)


def arm(x0: int = 7, pc: int = 0x5004, number: int = 98) -> bytes:
    """Registers with recognisable values, as user_pt_regs."""
    values = list(range(2000, 2034))
    values[0], values[8], values[31], values[32] = x0 % MINUS, number, STACK & ~15, pc
    values[33] = 0x1000 | 3 << 10
    return struct.pack("<34Q", *values)


def test_x86_arguments_are_in_registers_and_the_stack_is_as_after_a_call() -> None:
    saved = Saved(x86(-512, 202), bytes(range(256)) * 4, 0xABC)
    call = Call(FUNCTION, (1, 0), result=0x7777, scratch=b"s" * SCRATCH_BYTES)
    frame = X8664().frame(saved, call, RETURN_TO)
    values = struct.unpack("<27Q", frame.registers)
    rdi, rsi, rdx = values[14], values[13], values[12]
    assert (rdi, rsi, rdx) == (0x7777, 1, 0)
    assert values[16] == FUNCTION
    assert values[19] == frame.address
    assert values[19] % 16 == 8
    assert values[15] == MINUS - 1  # no system call is repeated on the way in
    assert not values[18] & 0x400
    assert struct.unpack_from("<Q", frame.data) == (RETURN_TO,)
    assert frame.address + len(frame.data) <= STACK - 128  # the red zone is left alone
    assert frame.data.endswith(b"s" * SCRATCH_BYTES)
    assert frame.address + len(frame.data) - SCRATCH_BYTES == X8664().scratch(saved.registers)


def test_x86_returns_by_a_bare_return_first() -> None:
    saved = Saved(x86(-512, 202), bytes(range(256)) * 4, 0xABC)
    frame = X8664().frame(saved, Call(FUNCTION, scratch=b"s" * SCRATCH_BYTES), RETURN_TO, BARE)
    straight = X8664().frame(saved, Call(FUNCTION, scratch=b"s" * SCRATCH_BYTES), RETURN_TO)
    assert struct.unpack("<27Q", frame.registers)[19] == frame.address == straight.address - 16
    assert struct.unpack_from("<QQQ", frame.data) == (BARE, 0, RETURN_TO)
    assert frame.data[16:] == straight.data


@pytest.mark.parametrize("failed_with", [4, 512, 513, 514, 516])
def test_x86_makes_an_interrupted_call_anew(failed_with: int) -> None:
    before = struct.unpack("<27Q", x86(-failed_with, 202))
    after = struct.unpack("<27Q", X8664().again(x86(-failed_with, 202)))
    assert (after[10], after[15], after[16]) == (202, MINUS - 1, before[16] - 2)
    changed = [n for n in range(27) if before[n] != after[n]]
    assert changed == [10, 15, 16]


def test_x86_signal_frame_is_as_the_kernel_reads_it() -> None:
    floats = bytes(range(256)) * 4
    frame = X8664().frame(Saved(x86(202, -1), floats, 0xABC), Call(FUNCTION), RETURN_TO)
    context = frame.data[8:]  # struct ucontext, offsets of <asm/ucontext.h>, <asm/sigcontext.h>
    at = {
        name: struct.unpack_from("<Q", context, offset)[0]
        for name, offset in {
            "flags": 0,
            "alternate stack": 32,
            "r8": 40,
            "rax": 144,
            "rsp": 160,
            "rip": 168,
            "fpstate": 224,
            "mask": 296,
        }.items()
    }
    assert (at["rax"], at["rip"]) == (202, 0x5005)
    assert (at["r8"], at["rsp"], at["mask"]) == (1009, STACK, 0xABC)
    assert at["alternate stack"] == 0  # refused by the kernel: the thread keeps its own
    assert at["fpstate"] % 64 == 0
    state = frame.data[at["fpstate"] - frame.address :]
    assert state[:464] == floats[:464]
    assert state[464:512] == bytes(48)


@pytest.mark.parametrize(
    ("registers", "following", "expected"),
    [
        (x86(-512, 202), b"", 202),
        (x86(-4, 232), b"", 232),
        (x86(202, -1), b"\x0f\x05", 202),
        (x86(0, 202), b"", None),
        (x86(-512, -1), b"", None),
    ],
    ids=["futex", "epoll", "about to make it", "call done", "no call"],
)
def test_x86_tells_an_interrupted_call_from_a_thread_that_runs(
    registers: bytes, following: bytes, expected: int | None
) -> None:
    assert X8664().system_call(registers, bytes(4) + following.ljust(4, b"\0")) == expected
    if expected is not None:
        again = X8664().again(registers)
        assert X8664().system_call(again, bytes(4) + b"\x0f\x05\0\0") == expected
        assert X8664().again(again) == again


def test_arm_passes_the_result_in_x8_and_returns_by_the_link_register() -> None:
    vectors = bytes(range(256)) * 2
    saved = Saved(arm(), vectors + struct.pack("<IIQ", 11, 22, 0), 0xABC)
    call = Call(FUNCTION, (1, 0, 5), result=0x7777, scratch=b"s" * SCRATCH_BYTES)
    frame = Aarch64().frame(saved, call, RETURN_TO)
    values = struct.unpack("<34Q", frame.registers)
    assert values[:3] == (1, 0, 5)
    assert values[8] == 0x7777
    assert (values[30], values[31], values[32]) == (RETURN_TO, frame.address, FUNCTION)
    assert not values[33] & 3 << 10
    assert frame.address % 16 == 0
    assert frame.address + len(frame.data) <= STACK
    assert frame.address + len(frame.data) - SCRATCH_BYTES == Aarch64().scratch(saved.registers)


def test_arm_returns_by_a_bare_return_first() -> None:
    saved = Saved(arm(), bytes(512) + struct.pack("<IIQ", 11, 22, 0), 0xABC)
    frame = Aarch64().frame(saved, Call(FUNCTION, scratch=b"s" * SCRATCH_BYTES), RETURN_TO, BARE)
    straight = Aarch64().frame(saved, Call(FUNCTION, scratch=b"s" * SCRATCH_BYTES), RETURN_TO)
    values = struct.unpack("<34Q", frame.registers)
    assert (values[30], values[31]) == (BARE, frame.address)
    assert frame.address == straight.address - 16
    assert struct.unpack_from("<QQ", frame.data) == (0, RETURN_TO)
    assert frame.data[16:] == straight.data


def test_arm_signal_frame_is_as_the_kernel_reads_it() -> None:
    vectors = bytes(range(256)) * 2
    saved = Saved(arm(), vectors + struct.pack("<IIQ", 11, 22, 0), 0xABC)
    frame = Aarch64().frame(saved, Call(FUNCTION), RETURN_TO)
    context = frame.data[128:]  # behind siginfo; offsets of <asm/ucontext.h>, <asm/sigcontext.h>
    assert struct.unpack_from("<Q", context, 40) == (0xABC,)
    assert struct.unpack_from("<34Q", context, 184) == struct.unpack("<34Q", saved.registers)
    magic, size, status, control = struct.unpack_from("<IIII", context, 464)
    assert (magic, size, status, control) == (0x46508001, 528, 11, 22)
    assert context[480:992] == vectors
    assert struct.unpack_from("<II", context, 992) == (0, 0)  # no more records


@pytest.mark.parametrize(
    ("registers", "before", "following", "expected"),
    [
        (arm(), 0, 0xD4000001, 98),
        (arm(x0=-4), 0xD4000001, 0, 98),
        (arm(x0=0), 0xD4000001, 0, None),
        (arm(), 0, 0, None),
    ],
    ids=["at the call again", "interrupted", "call done", "elsewhere"],
)
def test_arm_tells_an_interrupted_call_from_a_thread_that_runs(
    registers: bytes, before: int, following: int, expected: int | None
) -> None:
    assert Aarch64().system_call(registers, struct.pack("<II", before, following)) == expected
