"""A lock file that a library tries to take again and again: no call shows which one it is."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor_probes.evidence import Blocked
from grpo_doctor_probes.look.filecalls import file_number
from grpo_doctor_probes.look.filelocks import holding_descriptors
from grpo_doctor_probes.look.hostview import HostView
from grpo_doctor_probes.printable import printable

PROC = Path("/proc")


def lock_file(pid: int, path: str, proc: Path = PROC) -> Blocked:
    """What the main thread of `pid` waits for, that wants the lock on `path`: who has it."""
    view = HostView(proc)
    number = file_number(f"{proc}/{pid}/root{path}")
    held = [one for one in view.locks if not one.waits and one.file == number and number]
    holders: set[int] = set()
    for lock in held:
        inherited = holding_descriptors(proc, view.holders.of(path), lock)
        holders |= set(inherited) or {lock.pid} & view.table.keys()
    holders -= {pid}
    if not number:
        note = "the file is not there, or not to be seen from here"
    elif holders:
        note = f"held by {', '.join(view.describe(one) for one in sorted(holders))}"
    else:
        note = "nobody holds a lock on it: if it means one by being there, it was left behind"
    return Blocked(
        pid,
        pid,
        "file-lock",
        target=printable(path, 300),
        peers=tuple(sorted(holders)),
        peers_known=bool(holders),
        note=note,
    )
