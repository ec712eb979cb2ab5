"""What looks like a hang for a moment and is none: a false `stuck` is the worst answer."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import Frame, PythonThread, Thread
from tests.evidence import (
    BETWEEN_S,
    FIRST_NS,
    SECOND,
    EvidenceBuilder,
    frames,
    without_communication,
)


def verdict(build: EvidenceBuilder) -> Verdict:
    return diagnose(build.build()).verdict


def test_a_rank_on_its_way_to_its_first_group_is_not_dead() -> None:
    build = EvidenceBuilder(recorded=False)
    late = without_communication(build, 2)
    late.works(frames("<module> /home/me/train.py:3"))
    assert verdict(build).state == "slow"


def test_ranks_that_end_in_order_are_not_dead() -> None:
    build = EvidenceBuilder(recorded=False)
    saves = frames("write /home/me/train.py:3", "save_checkpoint /home/me/train.py:8")
    build.rank(0).works(saves)
    for rank in (1, 2, 3):
        build.rank(rank).state, build.rank(rank).exit_code = "Z", 0
    assert verdict(build).state == "slow"


def test_a_job_that_ends_meanwhile() -> None:
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        build.rank(rank).state = "X"
    outcome = verdict(build)
    assert outcome.state == "dead"
    assert outcome.summary == "The job ended during the inspection. No rank is left."


def test_a_job_whose_ranks_all_exit_with_0_is_healthy() -> None:
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        build.rank(rank).state, build.rank(rank).exit_code = "Z", 0
    assert verdict(build).state == "healthy"


def test_a_rank_that_ended_a_moment_ago_is_not_dead() -> None:
    build = EvidenceBuilder()
    build.waited_s = 0.5
    build.rank(3).state = "X"
    assert verdict(build).state in ("healthy", "slow")


def test_of_two_hosts_only_the_rank_that_should_be_here_is_dead() -> None:
    build = EvidenceBuilder(ranks=8)
    for rank in (1, 4, 5, 6, 7):
        build.lose(rank)
    build.local_ranks = 4
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("dead", "rank-dead", (1,))


EXECUTOR = "/usr/lib/python3.11/concurrent/futures"


def test_a_rollout_of_a_server_on_another_host_takes_its_time() -> None:
    build = EvidenceBuilder()
    build.waited_s = 900.0
    rank = build.elsewhere(
        0,
        frames(
            "send /x/site-packages/requests/adapters.py:20",
            "generate /x/site-packages/trl/extras/vllm_client.py:200",
            "main /home/me/train.py:3",
        ),
    )
    rank.still_s = 900.0
    rank.blocks("socket-receive", "10.0.0.9:8000")
    assert verdict(build).state == "slow"


ASKS = frames("ask /home/me/rewards.py:3", "reward /home/me/train.py:9")


def test_a_thread_that_reads_token_by_token_keeps_its_rank_alive() -> None:
    build = EvidenceBuilder()
    gets = frames("get /usr/lib/python3.11/queue.py:171", "rollout /home/me/train.py:9")
    process = build.elsewhere(0, gets)
    reads = frames("read_token /home/me/t.py:5", f"_worker {EXECUTOR}/thread.py:83")
    task = Thread(901, "worker", "S", "sk_wait_data", last_ran_ns=_ago_ns(0.3))
    process.threads = [(PythonThread(901, "worker", reads), task)]
    assert verdict(build).state == "slow"
    silent = replace(task, last_ran_ns=_ago_ns(10.0))
    process.threads = [(PythonThread(901, "worker", reads), silent)]
    assert verdict(build).state == "stuck"


def test_of_many_requests_one_that_was_just_sent_keeps_its_rank_alive() -> None:
    build = EvidenceBuilder()
    waits = frames(f"result {EXECUTOR}/_base.py:451", *_lines(ASKS))
    process = build.elsewhere(1, waits)
    reads = frames("recv /home/me/t.py:5", f"_worker {EXECUTOR}/thread.py:83")
    for tid, ago_s in ((901, 10.0), (902, 1.5)):
        task = Thread(tid, "worker", "S", "sk_wait_data", last_ran_ns=_ago_ns(ago_s))
        process.threads.append((PythonThread(tid, "worker", reads), task))
    assert verdict(build).state == "slow"


def _ago_ns(seconds: float) -> int:
    """At the second look."""
    return FIRST_NS + int((BETWEEN_S - seconds) * SECOND)


def _lines(stack: tuple[Frame, ...]) -> list[str]:
    return [f"{frame.function} {frame.file}:{frame.line}" for frame in stack]


def test_a_job_of_which_no_rank_has_got_on_for_a_moment_is_not_called_healthy() -> None:
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        build.rank(rank).still_s = 1.8
    outcome = verdict(build)
    assert (outcome.state, outcome.culprits) == ("slow", ())
    assert outcome.summary == "Slow: no rank has made progress for 1.8 s, which is not unusual yet."
