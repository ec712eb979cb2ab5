"""Evidence of bundles that were written before a field was there, with the field filled in."""

from __future__ import annotations

import re
from dataclasses import replace

from grpo_doctor_probes.evidence import Blocked, Evidence

_UNCONFIRMED = re.compile(r"(\d{1,15}) bytes are not confirmed by the other end")
_SENT_AGAIN = re.compile(r"sent again (\d{1,9}) times")
_STOPPED = re.compile(r"(\d{1,8}) \([^()]*, stopped\)")
_UNREAD = re.compile(r"it has (\d{1,15}) bytes that it has not read")


def with_counts(evidence: Evidence) -> Evidence:
    """What connections had outstanding was said in words alone before it was counted."""
    return replace(evidence, blocked=tuple(map(_counted, evidence.blocked)))


def _counted(row: Blocked) -> Blocked:
    if not row.note or row.unconfirmed_bytes or row.retransmits or row.peer_unread_bytes:
        return row
    stopped = tuple(int(pid) for pid in _STOPPED.findall(row.note))
    return replace(
        row,
        unconfirmed_bytes=_number(_UNCONFIRMED, row.note),
        retransmits=_number(_SENT_AGAIN, row.note),
        peer_unread_bytes=_number(_UNREAD, row.note),
        stopped_peers=row.stopped_peers or tuple(pid for pid in stopped if pid in row.peers),
    )


def _number(pattern: re.Pattern[str], note: str) -> int:
    found = pattern.search(note)
    return int(found[1]) if found is not None else 0
