"""What is unusual for a job, by what its recorders have seen of it."""

from __future__ import annotations

from tests.evidence import EvidenceBuilder, frames
from tests.verdicts import expect

QUEUE = frames(
    "get /usr/lib/python3.11/queue.py:171",
    "judge /home/me/rewards.py:40",
    "main /home/me/train.py:3",
)


def asking(waited_s: float, *, gather: bool, judge: str = "") -> EvidenceBuilder:
    """Rank 0 waits at a queue, or asks a judge elsewhere. The others wait in the operation of every
    step, or gather, which they have never done before.
    """
    build = EvidenceBuilder()
    build.waited_s = waited_s
    process = build.elsewhere(0, QUEUE)
    process.still_s = waited_s
    if judge:
        process.blocks("socket-receive", judge)
    for rank in (1, 2, 3):
        build.rank(rank).still_s = waited_s
        if gather:
            build.calls(rank, "all_gather", size=8)
    return build


def test_a_wait_of_a_kind_that_never_took_long_is_unusual_soon() -> None:
    expect(asking(8.0, gather=False), "reward-blocked", 0)


def test_a_wait_of_a_new_kind_may_take_longer() -> None:
    said = expect(asking(8.0, gather=True), "reward-blocked", 0, state="slow").verdict
    assert "longest before" not in said.summary
    expect(asking(40.0, gather=True), "reward-blocked", 0)


def test_a_server_elsewhere_may_answer_after_a_while() -> None:
    for waited_s in (8.0, 20.0, 45.0):
        asked = asking(waited_s, gather=False, judge="10.0.0.9:443")
        expect(asked, "reward-blocked", 0, state="slow")
    expect(asking(61.0, gather=False, judge="10.0.0.9:443"), "reward-blocked", 0)
