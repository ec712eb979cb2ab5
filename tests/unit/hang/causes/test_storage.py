"""File systems that do not answer."""

from __future__ import annotations

from tests.evidence import EvidenceBuilder, frames
from tests.verdicts import UPDATE, expect


def test_a_fifo_that_nobody_writes() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, UPDATE)
    process.blocks("fifo-open", "/data/prompts")
    expect(build, "storage-blocked", 0)


def test_uninterruptible_sleep() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, frames("save /me/train.py:3", "save_checkpoint /me/train.py:8"))
    process.state, process.wchan = "D", "nfs_wait_bit"
    expect(build, "storage-blocked", 0)
