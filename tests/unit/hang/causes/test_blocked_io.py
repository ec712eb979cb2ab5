"""Pipes, sockets and sleeps: what does not come, and when that is unusual."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.diagnose import diagnose
from tests.evidence import EvidenceBuilder, frames
from tests.verdicts import REWARD, UPDATE, expect


def test_a_full_pipe_that_nobody_reads() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, REWARD)
    process.blocks("pipe-write", "pipe:[7]", 101, fd=5, peers_known=True)
    found = expect(build, "reward-blocked", 1)
    assert found.undo[0].target == "/proc/101/fd/5"


def test_a_full_pipe_explains_itself_by_its_stopped_reader() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    reader = build.child(1, "helper", pid=200)
    reader.state = "T"
    process.blocks("pipe-write", "pipe:[7]", 200, fd=5, peers_known=True)
    said = expect(build, "user-code-blocked", 1).verdict
    assert "pid 200" in said.summary


@pytest.mark.parametrize(
    ("stack", "cause"),
    [
        (REWARD, "reward-blocked"),
        (UPDATE, "user-code-blocked"),
        (frames("send /me/sync.py:3", "sync_weights /me/train.py:4"), "weight-sync-blocked"),
        (frames("read /me/d.py:3", "next_batch /me/train.py:4"), "dataload-blocked"),
    ],
)
def test_an_answer_that_does_not_come(stack: tuple, cause: str) -> None:  # type: ignore[type-arg]
    build = EvidenceBuilder()
    process = build.elsewhere(3, stack)
    process.blocks("socket-receive", "10.0.0.7:8000")
    expect(build, cause, 3, state="slow")  # after 10 s: a judge may take 40
    build.waited_s = process.still_s = 70.0
    expect(build, cause, 3)


def test_a_wait_that_is_short_for_this_job_is_slow() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    process = build.elsewhere(3, REWARD)
    process.still_s = 4.0
    process.blocks("socket-receive", "10.0.0.7:8000")
    said = expect(build, "reward-blocked", 3, state="slow").verdict
    assert "not yet unusual" in said.summary


def test_without_history_a_soft_wait_is_slow_until_the_floor() -> None:
    build = EvidenceBuilder(recorded=False)
    process = build.elsewhere(3, REWARD)
    process.blocks("sleep")
    expect(build, "reward-blocked", 3, state="slow")
    process.still_s = 31.0
    expect(build, "reward-blocked", 3)


def test_who_writes_to_a_pipe_whose_reader_is_stopped_goes_on_when_that_does() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.blocks("pipe-write", "pipe:[7]", 4711, fd=1, peers_known=True, stopped_peers=(4711,))
    found = diagnose(build.build())
    assert (found.verdict.state, found.verdict.culprits) == ("stuck", (1,))
    assert found.verdict.fixes[0].text.startswith("kill -CONT 4711")
    assert [(one.kind, one.pid) for one in found.undo] == [("continue", 4711)]
    assert found.verdict.can_go_on.startswith("Yes, as soon as pid 4711")


def test_who_waits_for_no_service_is_not_told_to_fix_one() -> None:
    build = EvidenceBuilder(recorded=False)
    process = build.elsewhere(3, (*frames("wait /usr/lib/python3.11/threading.py:320"), *REWARD))
    process.blocks("futex")
    process.still_s = 60.0
    found = expect(build, "reward-blocked", 3)
    assert found.verdict.can_go_on.startswith("Only if another thread of its process")
