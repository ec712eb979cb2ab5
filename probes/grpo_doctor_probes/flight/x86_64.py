"""A call on x86-64, System V ABI.

The return address leads to the C library's own signal return, and above it lies a signal frame with
the thread's registers. So whoever is there when the call ends, we or nobody, the thread goes on
where it was; a return to an invalid address would kill the job if we died meanwhile.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from grpo_doctor_probes.flight.machine import INTERRUPTED, SCRATCH_BYTES, Call, Frame, Saved

# fmt: off
_NAMES = (  # struct user_regs_struct
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8",
    "rax", "rcx", "rdx", "rsi", "rdi", "orig_rax", "rip", "cs", "eflags", "rsp",
    "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs",
)
_SIGNAL_FRAME_ORDER = (
    "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
    "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp", "rip",
)
# fmt: on
_REGISTERS = struct.Struct("<27Q")
_CONTEXT = struct.Struct("<QQQQQ18QHHHH4QQ64sQ")  # struct ucontext up to its first 64 signals
_STACK_SELECTOR_GIVEN = 2 | 4  # UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
_RED_ZONE_BYTES = 128
_FXSAVE_BYTES, _FXSAVE_SOFTWARE = 512, 464  # the rest of it is for software's use
_DIRECTION_FLAG = 1 << 10
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_SYSCALL = b"\x0f\x05"
_NONE = (1 << 64) - 1


class X8664:
    """x86-64."""

    name: str = "x86_64"
    floats = 0x202  # NT_X86_XSTATE
    futex = 202
    tgkill = 234
    return_code = b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"  # mov $15, %rax; syscall
    return_library = "libc.so.6"
    bare_return = b"\x48\x83\xc4\x08\xc3"  # add $8, %rsp; ret
    asleep_in: Mapping[int, str] = {
        202: "futex", 230: "clock_nanosleep", 35: "nanosleep", 7: "poll", 271: "ppoll",
        23: "select", 270: "pselect6", 0: "read", 45: "recvfrom", 47: "recvmsg", 43: "accept",
        288: "accept4", 61: "wait4", 247: "waitid", 219: "restart_syscall", 232: "epoll_wait",
        281: "epoll_pwait", 441: "epoll_pwait2",
    }  # fmt: skip

    def system_call(self, registers: bytes, code: bytes) -> int | None:
        """The one it was interrupted in, or is about to make: a stopped thread we gave back."""
        values = _unpack(registers)
        if values["orig_rax"] == _NONE:
            return values["rax"] if code[4:6] == _SYSCALL else None
        return values["orig_rax"] if (1 << 64) - values["rax"] in INTERRUPTED else None

    def again(self, registers: bytes) -> bytes:
        """Back by the length of `syscall`, with the call's number in rax."""
        values = _unpack(registers)
        if values["orig_rax"] != _NONE:
            values.update(rax=values["orig_rax"], rip=values["rip"] - len(_SYSCALL))
        values["orig_rax"] = _NONE
        return _REGISTERS.pack(*values.values())

    def first_argument(self, registers: bytes) -> int:
        """RDI."""
        return _unpack(registers)["rdi"]

    def stack(self, registers: bytes) -> int:
        """RSP."""
        return _unpack(registers)["rsp"]

    def position(self, registers: bytes) -> int:
        """RIP."""
        return _unpack(registers)["rip"]

    def scratch(self, registers: bytes) -> int:
        """Below the red zone, where a leaf function may keep values."""
        return (self.stack(registers) - _RED_ZONE_BYTES - SCRATCH_BYTES) & ~63

    def frame(self, saved: Saved, call: Call, return_to: int, by: int = 0) -> Frame:
        """Upwards: return addresses, ucontext, floating-point state, scratch."""
        scratch = self.scratch(saved.registers)
        floats = scratch - _FXSAVE_BYTES
        context = (floats - _CONTEXT.size) & ~15  # so that, as after a call, rsp % 16 == 8
        returns = struct.pack("<QQQ", by, 0, return_to) if by else struct.pack("<Q", return_to)
        entry = context - len(returns)
        fxsave = saved.floats[:_FXSAVE_SOFTWARE].ljust(_FXSAVE_BYTES, b"\0")
        data = returns + _context(saved, floats)
        data = data.ljust(floats - entry, b"\0") + fxsave + call.scratch[:SCRATCH_BYTES]
        values = _unpack(saved.registers)
        arguments = (() if call.result is None else (call.result,)) + tuple(call.arguments)
        values.update(zip(_ARGUMENTS, arguments))
        values.update(rip=call.function, rsp=entry, rax=0, orig_rax=_NONE)
        values["eflags"] &= ~_DIRECTION_FLAG
        return Frame(entry, data, _REGISTERS.pack(*values.values()))


def _unpack(registers: bytes) -> dict[str, int]:
    return dict(zip(_NAMES, _REGISTERS.unpack(registers)))


def _context(saved: Saved, floats: int) -> bytes:
    """The signal frame's struct ucontext.

    An alternate stack of no bytes is refused by the kernel, so the thread keeps the one it has.
    """
    values = _unpack(saved.registers)
    return _CONTEXT.pack(
        _STACK_SELECTOR_GIVEN, 0, *(0, 0, 0),
        *(values[name] for name in _SIGNAL_FRAME_ORDER),
        values["eflags"], values["cs"], *(0, 0), values["ss"], *(0, 0, 0, 0),
        floats, b"", saved.blocked,
    )  # fmt: skip
