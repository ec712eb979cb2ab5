"""Bundles from before connections were counted."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.collection.bundle.packing import with_counts
from grpo_doctor_probes.evidence import Blocked
from tests.evidence import EvidenceBuilder

SAID = "ESTABLISHED; 48 bytes are not confirmed by the other end; sent again 5 times"
READS_NOT = "ESTABLISHED; it has 82 bytes that it has not read"


def counted(row: Blocked) -> tuple[int, int, int]:
    evidence = with_counts(replace(EvidenceBuilder(ranks=1).build(), blocked=(row,)))
    (found,) = evidence.blocked
    return found.unconfirmed_bytes, found.retransmits, found.peer_unread_bytes


def test_what_was_said_in_words_is_counted() -> None:
    assert counted(Blocked(1, 1, "socket-send", note=SAID)) == (48, 5, 0)
    assert counted(Blocked(1, 1, "socket-receive", note=READS_NOT)) == (0, 0, 82)
    assert counted(Blocked(1, 1, "pipe-read", note="nobody holds the other end")) == (0, 0, 0)


def test_what_was_counted_stays() -> None:
    row = Blocked(1, 1, "socket-send", note=SAID, unconfirmed_bytes=7)
    assert counted(row) == (7, 0, 0)


def test_who_was_said_to_be_stopped_is_known_as_such() -> None:
    note = "the other end is held by 77 (tee, stopped), 78 (cat, sleeping)"
    row = Blocked(1, 1, "pipe-write", peers=(77, 78), note=note)
    evidence = with_counts(replace(EvidenceBuilder(ranks=1).build(), blocked=(row,)))
    assert evidence.blocked[0].stopped_peers == (77,)
