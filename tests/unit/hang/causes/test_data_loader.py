"""Loaders whose workers do not deliver."""

from __future__ import annotations

from tests.evidence import EvidenceBuilder, frames
from tests.verdicts import UPDATE, expect, verdict


def test_a_loader_whose_worker_is_stopped() -> None:
    build = EvidenceBuilder()
    loader = frames(
        "_try_get_data /x/site-packages/torch/utils/data/dataloader.py:5",
        "main /home/me/train.py:5",
    )
    build.elsewhere(1, loader)
    build.child(1, "dataloader", pid=300).state = "T"
    expect(build, "dataload-blocked", 1)


def test_a_loader_whose_worker_works_is_slow() -> None:
    build = EvidenceBuilder()
    loader = frames(
        "_try_get_data /x/site-packages/torch/utils/data/dataloader.py:5",
        "main /home/me/train.py:5",
    )
    process = build.elsewhere(1, loader)
    process.blocks("pipe-read", "pipe:[7]", 300, peers_known=True)
    build.child(1, "dataloader", pid=300).works(UPDATE)
    build.waited_s = 200.0
    assert verdict(build).state == "slow"
