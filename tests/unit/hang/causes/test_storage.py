"""File systems that do not answer."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.evidence import Disk
from tests.evidence import EvidenceBuilder, frames
from tests.verdicts import UPDATE, expect, verdict


def test_a_fifo_that_nobody_writes() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, UPDATE)
    process.blocks("fifo-open", "/data/my prompts")
    said = expect(build, "storage-blocked", 0).verdict
    assert said.confirm[0].startswith("fuser -v '/data/my prompts'")
    assert not any("unmount" in fix.text for fix in said.fixes)


def test_uninterruptible_sleep() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, frames("save /me/train.py:3", "save_checkpoint /me/train.py:8"))
    process.state, process.wchan = "D", "nfs_wait_bit"
    expect(build, "storage-blocked", 0)


def test_a_log_that_is_flushed_to_a_busy_disk() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    process = build.elsewhere(0, UPDATE)
    process.state, process.wchan, process.still_s = "D", "folio_wait_bit_common", 4.0
    assert verdict(build).state == "slow"
    process.wchan = "rpc_wait_bit_killable"
    expect(build, "storage-blocked", 0)


def test_a_disk_that_never_has_it_all() -> None:
    build = EvidenceBuilder()
    build.waited_s = 30.0
    process = build.elsewhere(0, UPDATE)
    process.state, process.wchan, process.still_s = "D", "jbd2_log_wait_commit", 30.0
    expect(build, "storage-blocked", 0)


@pytest.mark.parametrize(
    ("total_gb", "free_bytes", "free_inodes", "full"),
    [
        (100, (16 << 20) - 1, 1000, True),
        (100, 16 << 20, 1000, False),
        (1, 1_999_999, 1000, True),  # 0.2% of it
        (1, 2_000_000, 1000, False),
        (100, 90 << 30, 0, True),
        (100, 90 << 30, 1, False),
        (100, 90 << 30, -1, False),  # a file system without inodes
        (0, 0, 0, False),  # it did not answer
    ],
)
def test_a_checkpoint_on_a_disk_without_room_or_inodes(
    total_gb: int, free_bytes: int, free_inodes: int, full: bool
) -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, frames("sleep /me/train.py:3", "save_checkpoint /me/train.py:8"))
    process.works(process.stack, moves=False)
    build.disks = [Disk("/ckpt", "ext4", total_gb * 10**9, free_bytes, free_inodes)]
    said = verdict(build)
    assert ("disk that is full" in said.summary) == full
    if full:
        assert (said.cause, said.culprits) == ("storage-blocked", (0,))
        assert ("no inode" in said.summary) == (free_inodes == 0)
