"""Locks that are files: who has them, and whether that ever ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.causes.locks import file_locks
from tests.evidence import EvidenceBuilder
from tests.unit.hang.causes.proposed import proposed
from tests.verdicts import UPDATE

FUTEX, OWN, NO_LIMIT = 0x7F00, 128 | 265, 0


@pytest.mark.parametrize(
    ("holders", "culprits", "words"),
    [
        ((), (0,), "; held by no visible process"),
        ((102,), (2,), "; held by pid 102 (python python.py)"),  # a rank that waits
        ((103,), (0,), "; held by pid 103 (python python.py)"),  # one that does not
        ((300,), (0,), "; held by pid 300 (python helper.py)"),
        ((102, 4711), (2,), "; held by pid 102 (python python.py), pid 4711"),
    ],
)
def test_who_has_the_lock_is_told_and_blamed_if_it_waits_with_it(
    holders: tuple[int, ...], culprits: tuple[int, ...], words: str
) -> None:
    build = EvidenceBuilder()
    build.elsewhere(0, UPDATE).blocks("file-lock", "/cache/model.lock", *holders)
    build.elsewhere(3, UPDATE)
    stranger = build.child(1, "helper", pid=300)
    stranger.member = replace(stranger.member, rank=None)
    label = next(label for label in proposed(file_locks, build) if label.evidence[0].rank == 0)
    assert label.culprits == culprits
    assert label.evidence[0].text.endswith(words)
