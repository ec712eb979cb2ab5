"""Ranks without a core are named as that."""

from __future__ import annotations

from grpo_doctor.hang.diagnose import diagnose
from tests.evidence import EvidenceBuilder, frames

UPDATE = frames("clip /home/me/train.py:31", "update /home/me/train.py:40", "main t.py:9")


def test_a_rank_that_computes_on_a_crowded_host_is_busy() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.works(UPDATE, share=0.5, moves=False)
    process.delay_share = 0.5
    assert diagnose(build.build()).verdict.cause == "user-code-busy"
