"""A job that stands in for a live one."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.evidence import Member
from tests.evidence import EvidenceBuilder
from tests.unit.hang.collection.played import Clock, Play, Played


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    def put(build: EvidenceBuilder, *extra: Member) -> Played:
        played = Played(build, Clock(), *extra)
        played.put(monkeypatch)
        return played

    return put
