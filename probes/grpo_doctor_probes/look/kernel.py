"""Messages of the kernel in the last hour that concern a job. Format: ABI/testing/dev-kmsg."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from grpo_doctor_probes.look.plain import clean

KMSG = Path("/dev/kmsg")
LAST_S = 3600.0
_MOST = 50
_RECORD_BYTES = 8192
_MOST_RECORDS = 1 << 18  # over those of the largest log, 32 MB: messages may come for ever
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


def messages(path: Path = KMSG) -> tuple[tuple[tuple[float, str], ...], str]:
    """`(age in s, text)` of the latest messages, oldest first, and why there are none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        return (), HIDDEN
    except OSError as error:
        return (), f"kernel messages cannot be read ({error.strerror}); on the host: dmesg -T"
    try:
        records = list(_records(descriptor))
    except PermissionError:
        return (), HIDDEN
    except OSError as error:  # containers may have another device under this name
        return (), f"kernel messages cannot be read ({error.strerror}); on the host: dmesg -T"
    finally:
        os.close(descriptor)
    # The log's clock (local_clock) is CLOCK_MONOTONIC but for NTP's corrections.
    return select(records, time.monotonic()), ""


def select(records: list[bytes], now_s: float) -> tuple[tuple[float, str], ...]:
    """Those of the last hour that concern a job. `now_s` is on the log's clock."""
    found = []
    for record in records:
        parsed = parse_record(record)
        if parsed is None:
            continue
        at_s, text = parsed
        age_s = max(0.0, now_s - at_s)
        if age_s <= LAST_S and _CONCERNS.search(text):
            found.append((age_s, text))
    return tuple(found[-_MOST:])


def parse_record(record: bytes) -> tuple[float, str] | None:
    """Time in s and text of `priority,sequence,microseconds,flags;text`; None for other lines."""
    head, semicolon, rest = record.partition(b";")
    words = head.split(b",")
    if not semicolon or len(words) < 3 or not words[2].isdigit():
        return None
    return int(words[2]) / 1e6, clean(rest.partition(b"\n")[0], 400)


def _records(descriptor: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < _MOST_RECORDS:
        try:
            record = os.read(descriptor, _RECORD_BYTES)
        except BlockingIOError:
            break
        except BrokenPipeError:  # overwritten while we read: the next read goes on behind the gap
            continue
        if not record:
            break
        found.append(record)
    return found
