"""Runs grpo-doctor where other processes' stacks may not be read, as with Yama or in many pods.

`python -m tests.spinning.refused attach ...`: a seccomp filter answers EPERM to ptrace, and py-spy
says what it says there. Ranks that were forked have their numbers in their memory alone, so reading
a few words of that is left.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
import tempfile
from pathlib import Path

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_PTRACE = {"x86_64": 101, "aarch64": 117}
_PY_SPY = """#!/bin/sh
echo "Permission Denied: Try running again with elevated permissions by going 'sudo !!'" >&2
exit 1
"""


def refuse() -> None:
    """No ptrace for this process and what it starts, for good."""
    program = [
        (_LOAD, 0, 0, 0),
        (_JUMP_EQUAL, 0, 1, _PTRACE[os.uname().machine]),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SECCOMP, _FILTER, header, 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def main() -> int:
    """grpo-doctor with the arguments given."""
    from grpo_doctor.cli import main as grpo_doctor
    from grpo_doctor_probes.look import pyspy

    refuse()
    with tempfile.TemporaryDirectory(prefix="refused-") as folder:
        script = Path(folder, "py-spy")
        script.write_text(_PY_SPY)
        script.chmod(0o755)
        pyspy.binary = lambda: str(script)
        return int(grpo_doctor(sys.argv[1:]) or 0)


if __name__ == "__main__":
    sys.exit(main())
