"""A call on either processor, carried out by an emulator: the only run of the ARM code so far.

Needs `pip install capstone unicorn`. What is emulated is a function as a compiler makes it and the
way back into the kernel; what the kernel does there is read off its own layout of a signal frame.
"""

from __future__ import annotations

import importlib
import struct
from dataclasses import dataclass
from typing import Any

import pytest

from grpo_doctor_probes.flight.aarch64 import Aarch64
from grpo_doctor_probes.flight.machine import SCRATCH_BYTES, Call, Frame, Machine, Saved
from grpo_doctor_probes.flight.x86_64 import X8664

capstone: Any = pytest.importorskip("capstone", reason="no independent decoder here")
unicorn: Any = pytest.importorskip("unicorn", reason="no emulator here")

STACK, STACK_BYTES = 0x7FFF_0000_0000, 0x10_0000
SP = STACK + STACK_BYTES - 0x1_0000 - 0x98  # as it may be in the midst of a function
FUNCTION, RETURN_TO, BARE = 0x50_0000, 0x60_0000, 0x70_0000
PAGE = 0x1000
# Saves what a callee must, stores its arguments into the result, and returns.
ARM_FUNCTION = (
    ("stp x29, x30, [sp, #-0x10]!", 0xA9BF7BFD),
    ("mov x29, sp", 0x910003FD),
    ("str x0, [x8]", 0xF9000100),
    ("str x1, [x8, #8]", 0xF9000501),
    ("str x2, [x8, #0x10]", 0xF9000902),
    ("mov x8, #0x99", 0xD2801328),
    ("ldp x29, x30, [sp], #0x10", 0xA8C17BFD),
    ("ret ", 0xD65F03C0),
)
X86_FUNCTION = (
    ("push rbp", "55"),
    ("mov rbp, rsp", "4889e5"),
    ("movaps xmmword ptr [rsp - 0x10], xmm0", "0f294424f0"),  # faults unless it is aligned
    ("mov qword ptr [rdi], rsi", "488937"),
    ("mov qword ptr [rdi + 8], rdx", "48895708"),
    ("mov qword ptr [rdi + 0x10], rcx", "48894f10"),
    ("mov rax, rdi", "4889f8"),
    ("pop rbp", "5d"),
    ("ret ", "c3"),
)
PSTATE = 0x6000_0000 | 3 << 10  # the flags Z and C, and a branch type that BTI would check


@dataclass(frozen=True)
class End:
    """Where the emulated thread asks the kernel for something: registers by unicorn's names."""

    number: int
    stack: int
    memory: Any


def arm_registers() -> bytes:
    values = [1000 + number for number in range(31)] + [SP & ~15, 0x4_0000, PSTATE]
    values[8] = 98  # it sleeps in futex
    return struct.pack("<34Q", *values)


def x86_registers() -> bytes:
    values = [2000 + number for number in range(27)]
    values[10], values[15], values[16], values[18], values[19] = 202, 0, 0x4_0000, 0x246, SP
    return struct.pack("<27Q", *values)


def frame_of(machine: Machine, registers: bytes, floats: bytes, by: int) -> tuple[Frame, int]:
    """A call with three arguments; and where its result is to be."""
    scratch = machine.scratch(registers)
    call = Call(FUNCTION, (1, 0, scratch + 32), result=scratch, scratch=bytes(SCRATCH_BYTES))
    return machine.frame(Saved(registers, floats, 0xABC), call, RETURN_TO, by), scratch


def prepared(emulator: Any, frame: Frame, function: bytes, machine: Machine) -> None:
    emulator.mem_map(STACK, STACK_BYTES)
    codes = {FUNCTION: function, RETURN_TO: machine.return_code, BARE: machine.bare_return}
    for address, code in codes.items():
        emulator.mem_map(address, PAGE)
        emulator.mem_write(address, code)
    emulator.mem_write(frame.address, frame.data)


def test_the_instructions_are_what_their_comments_say() -> None:
    arm = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
    x86 = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    texts = {
        "arm": [f"{i.mnemonic} {i.op_str}" for i in arm.disasm(Aarch64.return_code, 0)],
        "x86": [f"{i.mnemonic} {i.op_str}".strip() for i in x86.disasm(X8664.return_code, 0)],
    }
    assert texts["arm"] == ["mov x8, #0x8b", "svc #0"]
    assert texts["x86"] == ["mov rax, 0xf", "syscall"]
    bare = [f"{i.mnemonic} {i.op_str}".strip() for i in arm.disasm(Aarch64.bare_return, 0)]
    assert bare == ["ldp x29, x30, [sp], #0x10", "ret"]
    bare = [f"{i.mnemonic} {i.op_str}".strip() for i in x86.disasm(X8664.bare_return, 0)]
    assert bare == ["add rsp, 8", "ret"]
    code = b"".join(struct.pack("<I", word) for _, word in ARM_FUNCTION)
    assert [f"{i.mnemonic} {i.op_str}" for i in arm.disasm(code, 0)] == [t for t, _ in ARM_FUNCTION]
    code = b"".join(bytes.fromhex(text) for _, text in X86_FUNCTION)
    assert [f"{i.mnemonic} {i.op_str}" for i in x86.disasm(code, 0)] == [t for t, _ in X86_FUNCTION]


@pytest.mark.parametrize("by", [0, BARE])
def test_arm_calls_and_comes_back_to_a_signal_frame(by: int) -> None:
    names: Any = importlib.import_module("unicorn.arm64_const")
    machine, registers = Aarch64(), arm_registers()
    vectors = bytes(range(256)) * 2
    floats = vectors + struct.pack("<IIQ", 11, 22, 0)
    frame, scratch = frame_of(machine, registers, floats, by)
    emulator = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
    code = b"".join(struct.pack("<I", word) for _, word in ARM_FUNCTION)
    prepared(emulator, frame, code, machine)
    values = struct.unpack("<34Q", frame.registers)
    for number in range(31):
        name = {29: "UC_ARM64_REG_FP", 30: "UC_ARM64_REG_LR"}.get(number, f"UC_ARM64_REG_X{number}")
        emulator.reg_write(getattr(names, name), values[number])
    emulator.reg_write(names.UC_ARM64_REG_SP, values[31])
    ends: list[int] = []

    def on_system_call(engine: Any, _number: int, _data: Any) -> None:
        ends.append(engine.reg_read(names.UC_ARM64_REG_X8))
        engine.emu_stop()

    emulator.hook_add(unicorn.UC_HOOK_INTR, on_system_call)
    emulator.emu_start(values[32], 0, count=100)
    assert ends == [139]  # rt_sigreturn
    stack = emulator.reg_read(names.UC_ARM64_REG_SP)
    assert stack % 16 == 0
    assert struct.unpack("<3Q", emulator.mem_read(scratch, 24)) == (1, 0, scratch + 32)
    # arch/arm64 struct rt_sigframe: siginfo, ucontext (mask at 40, sigcontext at 176).
    context = stack + 128
    assert struct.unpack("<Q", emulator.mem_read(context + 40, 8)) == (0xABC,)
    assert emulator.mem_read(context + 176 + 8, 34 * 8) == registers
    record = emulator.mem_read(context + 176 + 288, 528)
    assert struct.unpack_from("<IIII", record) == (0x46508001, 528, 11, 22)
    assert record[16:] == vectors
    assert struct.unpack("<II", emulator.mem_read(context + 176 + 288 + 528, 8)) == (0, 0)


@pytest.mark.parametrize("by", [0, BARE])
def test_x86_calls_and_comes_back_to_a_signal_frame(by: int) -> None:
    names: Any = importlib.import_module("unicorn.x86_const")
    machine, registers = X8664(), x86_registers()
    floats = bytes(range(256)) * 4
    frame, scratch = frame_of(machine, registers, floats, by)
    emulator = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
    code = b"".join(bytes.fromhex(text) for _, text in X86_FUNCTION)
    prepared(emulator, frame, code, machine)
    values = struct.unpack("<27Q", frame.registers)
    for position, name in ((14, "RDI"), (13, "RSI"), (12, "RDX"), (11, "RCX"), (19, "RSP")):
        emulator.reg_write(getattr(names, f"UC_X86_REG_{name}"), values[position])
    ends: list[int] = []

    def on_system_call(engine: Any, _data: Any) -> None:
        ends.append(engine.reg_read(names.UC_X86_REG_RAX))
        engine.emu_stop()

    emulator.hook_add(unicorn.UC_HOOK_INSN, on_system_call, None, 1, 0, names.UC_X86_INS_SYSCALL)
    emulator.emu_start(values[16], 0, count=100)
    assert ends == [15]  # rt_sigreturn
    stack = emulator.reg_read(names.UC_X86_REG_RSP)
    assert struct.unpack("<3Q", emulator.mem_read(scratch, 24)) == (1, 0, scratch + 32)
    # arch/x86 struct rt_sigframe begins 8 below: its first word is the return address.
    context = stack
    read = {
        name: struct.unpack("<Q", emulator.mem_read(context + offset, 8))[0]
        for name, offset in {"rax": 144, "rsp": 160, "rip": 168, "mask": 296}.items()
    }
    assert read == {"rax": 202, "rsp": SP, "rip": 0x4_0000, "mask": 0xABC}
