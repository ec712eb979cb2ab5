"""What looks like a hang for a moment and is none: a false `stuck` is the worst answer."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import CallArguments, Frame, Limits, PythonThread, Thread
from tests.evidence import (
    BETWEEN_S,
    FIRST_NS,
    SECOND,
    EvidenceBuilder,
    frames,
    without_communication,
)

UPDATE = frames("clip /home/me/train.py:31", "update /home/me/train.py:40", "main t.py:9")


def verdict(build: EvidenceBuilder) -> Verdict:
    return diagnose(build.build()).verdict


def _thread(tid: int, stack: tuple[Frame, ...]) -> tuple[PythonThread, Thread]:
    task = Thread(tid, "worker", "S", "futex_do_wait", last_ran_ns=1)
    return PythonThread(tid, "worker", stack), task


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


def test_ranks_of_another_host_are_not_dead() -> None:
    build = EvidenceBuilder(ranks=8)
    for rank in (4, 5, 6, 7):
        build.lose(rank)
    build.local_ranks = None
    assert verdict(build).state == "slow"


def test_of_two_hosts_only_the_rank_that_should_be_here_is_dead() -> None:
    build = EvidenceBuilder(ranks=8)
    for rank in (1, 4, 5, 6, 7):
        build.lose(rank)
    build.local_ranks = 4
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("dead", "rank-dead", (1,))


def test_an_old_kill_in_the_control_group_is_nobodys_end() -> None:
    build = EvidenceBuilder()
    build.elsewhere(1, UPDATE).still_s = 1.0
    build.waited_s = 1.0
    sandbox = build.child(1, "reward", pid=500)
    sandbox.state, sandbox.exit_code = "Z", 0
    sandbox.limits = (Limits(500, oom_kills=3), Limits(500, oom_kills=3))
    assert verdict(build).state in ("healthy", "slow")


EXECUTOR = "/usr/lib/python3.11/concurrent/futures"


def test_a_pool_of_threads_waits_for_no_child() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    asks = frames(f"result {EXECUTOR}/_base.py:451", "score /home/me/rewards.py:9")
    rank = build.elsewhere(1, asks)
    rank.still_s = 4.0
    judge = frames("ask_judge /home/me/rewards.py:3", f"_worker {EXECUTOR}/thread.py:83")
    rank.threads = [_thread(901, judge)]
    idle = build.child(1, "helper", pid=500)
    idle.stack = frames("get /usr/lib/python3.11/multiprocessing/queues.py:103")
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("slow", "reward-blocked", (1,))


def test_a_loader_without_workers_that_waits_for_the_network() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    rank = build.elsewhere(
        1,
        frames(
            "readinto /usr/lib/python3.11/socket.py:706",
            "_iter /x/site-packages/datasets/iterable_dataset.py:20",
            "_next_data /x/site-packages/torch/utils/data/dataloader.py:674",
            "main /home/me/train.py:9",
        ),
    )
    rank.still_s = 4.0
    rank.blocks("socket-receive", "10.0.0.9:443")
    assert verdict(build).state == "slow"


def test_a_loader_whose_other_workers_came_to_their_end() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    rank = build.elsewhere(
        1,
        frames(
            "_try_get_data /x/site-packages/torch/utils/data/dataloader.py:1132",
            "main /home/me/train.py:9",
        ),
    )
    rank.still_s = 4.0
    done, reads = build.child(1, "dataloader", pid=500), build.child(1, "dataloader", pid=501)
    done.state, done.exit_code = "Z", 0
    reads.stack, reads.still_s = frames("__getitem__ /home/me/data.py:3"), 4.0
    assert verdict(build).state == "slow"


def test_two_threads_that_want_the_lock_of_a_third() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    rank = build.elsewhere(1, frames("log /home/me/train.py:3"))
    rank.still_s = 4.0
    rank.threads = [
        _thread(901, frames("log /home/me/train.py:3", "report /home/me/train.py:40")),
        _thread(902, frames("read /usr/lib/python3.11/socket.py:9", "send /home/me/m.py:2")),
    ]
    assert verdict(build).state == "slow"


def test_a_lock_whose_owner_downloads_is_slow() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    build.elsewhere(0, frames("read /x/site-packages/huggingface_hub/file_download.py:4"))
    build.rank(0).blocks("socket-receive", "10.0.0.9:443")
    waits = build.elsewhere(1, UPDATE)
    waits.blocks("file-lock", "/cache/model.lock", 100)
    build.rank(0).still_s = waits.still_s = 4.0
    assert verdict(build).state == "slow"


def test_an_answer_from_a_helper_that_asks_somebody_else_is_slow() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    rank = build.elsewhere(1, UPDATE)
    rank.still_s = 4.0
    build.child(1, "reward", pid=500).still_s = 4.0
    rank.blocks("pipe-read", "pipe:[77]", 500, peers_known=True)
    assert verdict(build).state == "slow"


def test_a_pipeline_whose_last_stage_computes() -> None:
    build = EvidenceBuilder(recorded=False)
    receives = frames("recv /x/site-packages/torch/distributed/distributed_c10d.py:9", "s t.py:2")
    for rank in (0, 1, 2):
        build.rank(rank).stack = receives
        build.arguments.append(CallArguments(100 + rank, "recv", {"src": str(rank + 1)}))
    build.rank(3).works(UPDATE)
    assert verdict(build).state == "slow"


def test_a_receive_from_a_rank_of_another_host() -> None:
    build = EvidenceBuilder(ranks=2, recorded=False)
    build.lose(1)
    build.local_ranks = 1
    build.rank(0).stack = frames(
        "recv /x/site-packages/torch/distributed/distributed_c10d.py:9", "step /home/me/t.py:2"
    )
    build.arguments = [CallArguments(100, "recv", {"src": "1"})]
    assert verdict(build).state == "slow"


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


def test_a_checkpoint_is_flushed_to_a_slow_disk() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    rank = build.elsewhere(0, frames("fsync /me/train.py:3", "save_checkpoint /me/train.py:8"))
    rank.state, rank.wchan, rank.still_s = "D", "jbd2_log_wait_commit", 4.0
    assert verdict(build).state == "slow"


def test_bytes_that_are_on_their_way_are_no_silence() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    for rank in range(4):
        build.rank(rank).still_s = 4.0
        build.rank(rank).blocks("poll", "10.0.0.9:4", tid=950, unconfirmed_bytes=65536)
    assert verdict(build).state == "slow"


def _all_spin_on_their_gpus(build: EvidenceBuilder) -> None:
    """As under NCCL: nobody is in a collective's call, each waits for its loss at one line."""
    for rank in range(build.world):
        process = build.rank(rank)
        process.works(UPDATE, moves=False)
        watchdog = Thread(900 + rank, "pt_nccl_watchdg", "S", last_ran_ns=1)
        process.threads = [(PythonThread(900 + rank, "", ()), watchdog)]


def test_ranks_that_all_wait_for_their_gpus_are_not_stuck_without_recordings() -> None:
    build = EvidenceBuilder(recorded=False)
    _all_spin_on_their_gpus(build)
    outcome = verdict(build)
    assert (outcome.state, outcome.cause) == ("slow", "unknown")


def test_ranks_that_wait_for_their_gpus_are_stuck_where_a_collective_is_long_outstanding() -> None:
    build = EvidenceBuilder()
    _all_spin_on_their_gpus(build)
    build.joins[2] = []
    outcome = verdict(build)
    assert (outcome.culprits, outcome.victims) == ((2,), (0, 1, 3))
    assert outcome.state in ("slow", "stuck")


def test_ranks_that_wait_for_their_gpus_for_a_moment_are_not_stuck() -> None:
    build = EvidenceBuilder()
    build.waited_s = 1.0
    _all_spin_on_their_gpus(build)
    assert verdict(build).state in ("healthy", "slow")


def test_a_mismatch_shows_while_all_ranks_wait_for_their_gpus() -> None:
    build = EvidenceBuilder()
    _all_spin_on_their_gpus(build)
    build.calls(2, "broadcast")
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == (
        "stuck",
        "collective-mismatch",
        (2,),
    )


ASKS = frames("ask /home/me/rewards.py:3", "reward /home/me/train.py:9")


def test_a_rank_that_ran_a_moment_ago_may_get_the_next_part_of_its_answer() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, ASKS)
    process.still_s, process.wchan = 2.0, "sk_wait_data"
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("slow", "reward-blocked", (1,))


def test_a_rank_that_asks_again_and_again_is_stuck_after_a_minute() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, ASKS)
    process.still_s, process.wakes, process.wchan = 0.1, 10, "hrtimer_nanosleep"
    assert verdict(build).state == "slow"
    build.waited_s = 90.0
    assert verdict(build).state == "stuck"


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


def test_a_server_that_runs_may_be_at_work_for_the_rank_that_polls_it() -> None:
    for ago_s, state in ((10.0, "stuck"), (0.5, "slow")):
        build = EvidenceBuilder()
        process = build.elsewhere(1, ASKS)
        process.wakes, process.still_s = 10, 0.1
        process.blocks("socket-receive", "127.0.0.1:4 -> 127.0.0.1:5", 700, peers_known=True)
        build.child(1, "server", pid=700, parent=1).still_s = ago_s
        assert verdict(build).state == state


def _ago_ns(seconds: float) -> int:
    """At the second look."""
    return FIRST_NS + int((BETWEEN_S - seconds) * SECOND)


def _lines(stack: tuple[Frame, ...]) -> list[str]:
    return [f"{frame.function} {frame.file}:{frame.line}" for frame in stack]


def test_a_child_that_serves_its_rank_in_other_threads_is_at_work() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, ASKS)
    process.still_s, process.wchan = 6.0, "sk_wait_data"
    process.blocks("socket-receive", "127.0.0.1:4 -> 127.0.0.1:5", 700, peers_known=True)
    child = build.child(1, "helper", pid=700)
    serves = frames("handle /home/me/judge.py:5")
    task = Thread(701, "handler", "S", "hrtimer_nanosleep", last_ran_ns=_ago_ns(0.3))
    child.threads = [(PythonThread(701, "handler", serves), task)]
    assert verdict(build).state == "slow"


def test_a_job_of_which_no_rank_has_got_on_for_a_moment_is_not_called_healthy() -> None:
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        build.rank(rank).still_s = 1.8
    outcome = verdict(build)
    assert (outcome.state, outcome.culprits) == ("slow", ())
    assert outcome.summary == "Slow: no rank has made progress for 1.8 s, which is not unusual yet."
