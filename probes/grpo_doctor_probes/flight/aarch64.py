"""A call on 64-bit ARM, AAPCS64. Same way back as on x86-64: see `x86_64`.

The link register leads to the signal return of the vdso. The kernel rewinds an interrupted system
call before it shows us the registers, so they are the ones to go on with.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from grpo_doctor_probes.flight.machine import EINTR, SCRATCH_BYTES, Call, Frame, Saved

_REGISTERS = struct.Struct("<34Q")  # struct user_pt_regs: x0..x30, sp, pc, pstate
_SP, _PC, _PSTATE, _LR = 31, 32, 33, 30
_FLOATS = struct.Struct("<512sII8x")  # struct user_fpsimd_state: v0..v31, fpsr, fpcr
_FLOAT_RECORD = struct.Struct("<IIII512s")  # struct fpsimd_context
_FPSIMD_MAGIC = 0x46508001
_SIGINFO_BYTES = 128
_HEAD = struct.Struct("<QQQQQQ120x8x")  # ucontext: flags, link, stack (3), mask; then mcontext
_MACHINE = struct.Struct("<Q34Q8x")  # struct sigcontext up to its records
_RECORDS_BYTES = 4096
_BRANCH_TYPE = 3 << 10  # PSTATE.BTYPE: the call is no indirect branch that BTI would check
_SVC = 0xD4000001


class Aarch64:
    """64-bit ARM."""

    name = "aarch64"
    floats = 2  # NT_PRFPREG
    futex = 98
    tgkill = 131
    return_code = struct.pack("<II", 0xD2801168, _SVC)  # mov x8, #139; svc #0
    return_library = "[vdso]"
    bare_return = struct.pack("<II", 0xA8C17BFD, 0xD65F03C0)  # ldp x29, x30, [sp], #16; ret
    asleep_in: Mapping[int, str] = {
        98: "futex", 115: "clock_nanosleep", 101: "nanosleep", 73: "ppoll", 72: "pselect6",
        63: "read", 207: "recvfrom", 212: "recvmsg", 202: "accept", 242: "accept4", 260: "wait4",
        95: "waitid", 128: "restart_syscall", 22: "epoll_pwait", 441: "epoll_pwait2",
    }  # fmt: skip

    def system_call(self, registers: bytes, code: bytes) -> int | None:
        """At its `svc` again, or just behind it with EINTR."""
        values = _REGISTERS.unpack(registers)
        before, following = struct.unpack("<II", code)
        interrupted = before == _SVC and values[0] == (1 << 64) - EINTR
        return values[8] if following == _SVC or interrupted else None

    def again(self, registers: bytes) -> bytes:
        """As they are: the kernel has rewound the call, or lost its argument: then EINTR it is."""
        return registers

    def first_argument(self, registers: bytes) -> int:
        """X0, which the kernel has put back."""
        return int(_REGISTERS.unpack(registers)[0])

    def stack(self, registers: bytes) -> int:
        """SP."""
        return int(_REGISTERS.unpack(registers)[_SP])

    def position(self, registers: bytes) -> int:
        """PC."""
        return int(_REGISTERS.unpack(registers)[_PC])

    def scratch(self, registers: bytes) -> int:
        """Directly below the stack: there is no red zone."""
        return (self.stack(registers) - SCRATCH_BYTES) & ~63

    def frame(self, saved: Saved, call: Call, return_to: int, by: int = 0) -> Frame:
        """Upwards: return address where it is not the link register, siginfo, ucontext with its
        records, scratch. The result's address is in x8."""
        scratch = self.scratch(saved.registers)
        context = _context(saved)
        returns = struct.pack("<QQ", 0, return_to) if by else b""
        entry = (scratch - len(returns) - _SIGINFO_BYTES - len(context)) & ~15
        data = (returns + bytes(_SIGINFO_BYTES) + context).ljust(scratch - entry, b"\0")
        values = list(_REGISTERS.unpack(saved.registers))
        values[: len(call.arguments)] = call.arguments
        if call.result is not None:
            values[8] = call.result
        values[_LR], values[_SP], values[_PC] = by or return_to, entry, call.function
        values[_PSTATE] &= ~_BRANCH_TYPE
        return Frame(entry, data + call.scratch[:SCRATCH_BYTES], _REGISTERS.pack(*values))


def _context(saved: Saved) -> bytes:
    """The signal frame's struct ucontext. The kernel insists on a floating-point record."""
    vectors, fpsr, fpcr = _FLOATS.unpack(saved.floats)
    record = _FLOAT_RECORD.pack(_FPSIMD_MAGIC, _FLOAT_RECORD.size, fpsr, fpcr, vectors)
    head = _HEAD.pack(0, 0, 0, 0, 0, saved.blocked)
    machine = _MACHINE.pack(0, *_REGISTERS.unpack(saved.registers))
    return head + machine + record.ljust(_RECORDS_BYTES, b"\0")
