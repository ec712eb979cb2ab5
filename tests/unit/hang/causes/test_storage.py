"""File systems that do not answer."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.causes.locks import storage
from grpo_doctor_probes.evidence import Disk, Frame
from tests.evidence import EvidenceBuilder, FakeProcess, frames
from tests.unit.hang.causes.proposed import only, proposed
from tests.verdicts import UPDATE, expect, verdict


def test_a_fifo_that_nobody_writes() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, UPDATE)
    process.blocks("fifo-open", "/data/my prompts")
    outcome = expect(build, "storage-blocked", 0).verdict
    assert outcome.confirm[0].startswith("fuser -v '/data/my prompts'")
    assert not any("unmount" in fix.text for fix in outcome.fixes)


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
    outcome = verdict(build)
    assert ("full disk" in outcome.summary) == full
    if full:
        assert (outcome.cause, outcome.culprits) == ("storage-blocked", (0,))
        assert ("no free inode" in outcome.summary) == (free_inodes == 0)


SAVES = frames("fsync /home/me/train.py:3", "save_checkpoint /home/me/train.py:8")
READS = frames("read /home/me/rows.py:3", "next_batch /home/me/train.py:4")


def in_kernel(
    stack: tuple[Frame, ...] = UPDATE, wchan: str = "nfs_wait_bit", **more: float
) -> tuple[EvidenceBuilder, FakeProcess]:
    """Rank 0 sleeps there uninterruptibly."""
    build = EvidenceBuilder()
    process = build.elsewhere(0, stack)
    process.state, process.wchan = "D", wchan
    for name, value in more.items():
        setattr(process, name, value)
    return build, process


@pytest.mark.parametrize(
    ("stack", "wchan", "still_s", "liveness"),
    [
        (UPDATE, "nfs_wait_bit", 5.0, "never-wakes"),
        (UPDATE, "folio_wait_bit_common", 19.5, "unseen"),  # it may be an fsync
        (UPDATE, "folio_wait_bit_common", 20.0, "never-wakes"),
        (SAVES, "nfs_wait_bit", 19.5, "unseen"),
        (SAVES, "nfs_wait_bit", 20.0, "never-wakes"),
    ],
)
def test_a_sleep_of_twenty_seconds_in_the_kernel_is_no_flush(
    stack: tuple[Frame, ...], wchan: str, still_s: float, liveness: str
) -> None:
    build, _ = in_kernel(stack, wchan, still_s=still_s)
    assert only(storage, build).liveness == liveness


@pytest.mark.parametrize(
    ("stack", "state", "cause"),
    [
        (READS, "D", "storage-blocked"),
        (READS, "S", "dataload-blocked"),
        (UPDATE, "S", "storage-blocked"),
    ],
)
def test_a_loader_s_wait_for_a_file_is_its_own_unless_the_kernel_hangs(
    stack: tuple[Frame, ...], state: str, cause: str
) -> None:
    build, process = in_kernel(stack)
    process.state = state
    assert only(storage, build).cause == cause


@pytest.mark.parametrize(
    ("stack", "writes"),
    [
        (frames("sleep /home/me/t.py:1", "save_checkpoint /home/me/t.py:8"), True),
        (frames("write_rows /home/me/t.py:1"), True),
        (frames("save_rows /home/me/t.py:1"), True),
        (frames("read_rows /home/me/t.py:1"), False),
        (frames("dump /x/site-packages/safetensors/torch.py:1", "go /home/me/t.py:1"), False),
    ],
)
def test_a_full_disk_matters_to_who_writes(stack: tuple[Frame, ...], writes: bool) -> None:
    build = EvidenceBuilder()
    build.elsewhere(0, stack)
    build.disks = [Disk("/ckpt", "ext4", 10**12, 1000, 50)]
    assert ["full disk" in label.reason for label in proposed(storage, build)] == (
        [True] if writes else []
    )
