"""Runs a command that may not read other processes' memory, as Yama or a container has it.

`python -m tests.spinning.refused COMMAND...`: a seccomp filter answers EPERM to process_vm_readv
and ptrace.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_REFUSED = {"x86_64": (310, 101), "aarch64": (270, 117)}  # process_vm_readv, ptrace


def refuse() -> None:
    """For this process and what it starts, for good."""
    calls = _REFUSED[os.uname().machine]
    program = [(_LOAD, 0, 0, 0)]
    program += [(_JUMP_EQUAL, len(calls) - place, 0, call) for place, call in enumerate(calls)]
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    code = b"".join(struct.pack("<HBBI", *one) for one in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SECCOMP, _FILTER, header, 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    refuse()
    os.execv(sys.argv[1], sys.argv[1:])
