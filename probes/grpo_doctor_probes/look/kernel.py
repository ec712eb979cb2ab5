"""Messages of the kernel in the last hour that concern a job."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path

from grpo_doctor_probes import kmsg
from grpo_doctor_probes.printable import printable

LAST_S = 3600.0
_MOST = 50
_LONGEST_LINE = 400
_CONCERNS = re.compile(
    r"out of memory|oom-kill|oom_reaper|killed process|nvrm|\bxid\b|nvswitch|nvlink"
    r"|not responding|hung_task|nvme.*timeout|blocked for more than|(?:soft|hard) lockup|rcu.*stall"
    r"|\bmce\b|machine check|hardware error|edac|segfault|general protection|traps:|i/o error"
    r"|remounting filesystem read-only|no space left|ext4-fs error|xfs.*(?:error|shutdown)"
    r"|mlx5.*(?:error|down)|link is down|link down|nfs:|lustreerror|ceph",
    re.IGNORECASE,
)
HIDDEN = (
    "kernel messages are hidden from this user, so an OOM kill or a GPU error would not be seen: "
    "sudo dmesg -T | tail -50, or sudo sysctl kernel.dmesg_restrict=0"
)


def messages(path: Path = kmsg.KMSG) -> tuple[tuple[tuple[float, str], ...], str]:
    """`(age in s, text)` of the latest messages, oldest first, and why there are none."""
    try:
        found = list(kmsg.records(path))
    except PermissionError:
        return (), HIDDEN
    except OSError as error:  # containers may have another device under this name
        return (), f"kernel messages cannot be read ({error.strerror}); on the host: dmesg -T"
    return select(found, time.monotonic()), ""


def select(records: Iterable[bytes], now_s: float) -> tuple[tuple[float, str], ...]:
    """Those of the last hour that concern a job. `now_s` is on the log's clock."""
    found = []
    for record in records:
        parsed = kmsg.parse_record(record)
        if parsed is None:
            continue
        at_s, text = parsed[0], printable(parsed[1], _LONGEST_LINE)
        age_s = max(0.0, now_s - at_s)
        if age_s <= LAST_S and _CONCERNS.search(text):
            found.append((age_s, text))
    return tuple(found[-_MOST:])
