"""From evidence to verdicts: every class once, and what must not be called stuck."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Diagnosis, Verdict
from grpo_doctor_probes.evidence import (
    CallArguments,
    EngineLook,
    Limits,
    LogTail,
    PythonThread,
    Thread,
)
from tests.evidence import (
    FIRST_NS,
    UNIX_NS,
    EvidenceBuilder,
    collective,
    frames,
    without_communication,
)

REWARD = frames("check /home/me/rewards.py:31", "reward /home/me/train.py:40", "main t.py:9")
UPDATE = frames("clip /home/me/train.py:31", "update /home/me/train.py:40", "main t.py:9")


def verdict(build: EvidenceBuilder) -> Verdict:
    return diagnose(build.build()).verdict


def expect(build: EvidenceBuilder, cause: str, *culprits: int, state: str = "stuck") -> Diagnosis:
    found = diagnose(build.build())
    said = found.verdict
    assert (said.state, said.cause, said.culprits) == (state, cause, culprits), said.summary
    return found


def test_a_stopped_rank() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(2, REWARD)
    process.state, process.wchan = "T", "do_signal_stop"
    found = expect(build, "rank-stopped", 2)
    assert found.verdict.summary == (
        "Rank 2 is stopped (SIGSTOP) in reward (rewards.py:31, check); "
        "ranks 0, 1, 3 wait for it in all_reduce."
    )
    assert found.verdict.victims == (0, 1, 3)
    assert [(one.kind, one.pid) for one in found.undo] == [("continue", 102)]
    assert found.verdict.phase == "reward"


def test_a_rank_stopped_inside_the_collective() -> None:
    build = EvidenceBuilder()
    build.rank(1).state = "T"
    expect(build, "rank-stopped", 1)


def test_two_stopped_ranks() -> None:
    build = EvidenceBuilder()
    for rank in (1, 3):
        build.elsewhere(rank, REWARD).state = "T"
    said = expect(build, "rank-stopped", 1, 3).verdict
    assert said.summary.startswith("Ranks 1, 3 are stopped")
    assert said.summary.endswith("ranks 0, 2 wait for them in all_reduce.")


def test_a_frozen_rank_proposes_to_thaw_it() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, REWARD)
    file = "/sys/fs/cgroup/job/cgroup.freeze"
    process.limits = (Limits(100, True, file), Limits(100, True, file))
    found = expect(build, "rank-stopped", 0)
    assert [(one.kind, one.target) for one in found.undo] == [("thaw", file)]


def test_a_dead_rank() -> None:
    build = EvidenceBuilder()
    process = build.rank(3)
    process.state, process.exit_code = "Z", 9
    found = expect(build, "rank-dead", 3, state="dead")
    assert "killed by SIGKILL" in found.verdict.summary


def test_a_rank_that_is_gone() -> None:
    build = EvidenceBuilder()
    build.lose(1)
    expect(build, "rank-dead", 1, state="dead")


def test_a_rank_killed_for_memory() -> None:
    build = EvidenceBuilder()
    build.rank(3).state = "Z"
    build.kernel = [(9.0, "Memory cgroup out of memory: Killed process 103 (python)")]
    expect(build, "oom-killed", 3, state="dead")


def test_a_rank_that_never_came() -> None:
    build = EvidenceBuilder(recorded=False)
    build.lose(1)
    joining = frames(
        "_store_based_barrier /x/site-packages/torch/distributed/distributed_c10d.py:80",
        "init_process_group /x/site-packages/torch/distributed/distributed_c10d.py:90",
        "main /home/me/train.py:5",
    )
    for rank in (0, 2, 3):
        build.rank(rank).stack, build.rank(rank).still_s = joining, 60.0
    found = expect(build, "rank-missing", 1)
    assert found.verdict.summary.startswith("Rank 1 has not come to the rendezvous")


def test_ranks_that_come_a_moment_later_are_waited_for() -> None:
    build = EvidenceBuilder(recorded=False)
    build.lose(1)
    joining = frames(
        "init_process_group /x/site-packages/torch/distributed/distributed_c10d.py:90",
        "main /home/me/train.py:5",
    )
    for rank in (0, 2, 3):
        build.rank(rank).stack, build.rank(rank).still_s = joining, 4.0
        started(build, rank, 3.0)
    assert verdict(build).state != "stuck"


def test_ranks_that_were_all_started_long_ago_miss_the_one_that_is_not_there() -> None:
    build = EvidenceBuilder(recorded=False)
    build.lose(1)
    joining = frames(
        "init_process_group /x/site-packages/torch/distributed/distributed_c10d.py:90",
        "main /home/me/train.py:5",
    )
    for rank in (0, 2, 3):
        # The store is asked in slices of seconds, so that no thread waits for long.
        build.rank(rank).stack, build.rank(rank).still_s = joining, 2.5
        started(build, rank, 30.0)
    expect(build, "rank-missing", 1)


def started(build: EvidenceBuilder, rank: int, ago_s: float) -> None:
    process = build.rank(rank)
    ticks = int((FIRST_NS / 1e9 - ago_s) * 100)
    process.member = replace(process.member, started_ticks=ticks)


def test_another_operation() -> None:
    build = EvidenceBuilder()
    build.rank(2).stack = collective("broadcast")
    build.joins[2] = []
    build.calls(2, "broadcast")
    expect(build, "collective-mismatch", 2)


def test_another_size() -> None:
    build = EvidenceBuilder()
    build.joins[1] = []
    build.calls(1, "all_reduce", size=65)
    expect(build, "collective-mismatch", 1)


def test_another_operation_without_recordings() -> None:
    build = EvidenceBuilder(recorded=False)
    build.rank(2).stack = collective("broadcast")
    assert verdict(build).culprits == (2,)


def test_a_receive_that_nobody_sends() -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, collective("recv"))
    build.arguments = [CallArguments(102, "recv", {"src": "3"})]
    expect(build, "p2p-unmatched", 2)


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


def test_a_file_lock() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, UPDATE)
    process.blocks("file-lock", "/cache/model.lock", 4711)
    said = expect(build, "lock-held", 0).verdict
    assert "pid 4711" in said.summary


def test_the_rank_that_keeps_a_lock_while_it_waits_is_to_blame() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, UPDATE)
    process.blocks("file-lock", "/cache/model.lock", 102)
    expect(build, "lock-held", 2)


def _thread(pid: int, tid: int, stack: tuple, name: str = "worker") -> tuple:  # type: ignore[type-arg]
    seen = Thread(tid, name, "S", "futex_do_wait", last_ran_ns=1)
    return PythonThread(tid, name, stack), seen


def test_two_threads_that_wait_for_each_other() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.blocks("futex")
    process.threads = [_thread(101, 901, frames("flush /home/me/log.py:7"))]
    expect(build, "thread-deadlock", 1)


def test_a_lock_that_is_never_given_back() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.blocks("futex")
    expect(build, "lock-held", 1)


def test_a_recorded_rank_in_a_collective_is_not_in_a_lock() -> None:
    probe = "/x/probes/grpo_doctor_probes/collectives.py"
    build = EvidenceBuilder(recorded=False)
    for rank in (0, 2, 3):
        process = build.rank(rank)
        process.stack = frames(f"_wrap_wait.<locals>.wait {probe}:168", "step /home/me/t.py:9")
        process.blocks("futex")
    build.elsewhere(1, REWARD).blocks("sleep")
    assert verdict(build).culprits == (1,)


def test_a_c_call_that_keeps_the_gil() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.owns_gil, process.wchan = True, "hrtimer_nanosleep"
    expect(build, "gil-held", 1)


def test_a_child_that_never_ends() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, REWARD)
    build.child(1, "reward", pid=300)
    process.blocks("child", "", 300)
    said = expect(build, "child-stuck", 1).verdict
    assert "pid 300" in said.summary


def test_a_child_that_was_forked_with_a_held_lock() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    child = build.child(1, "helper", pid=300)
    child.stack = frames("log /home/me/log.py:7")
    process.blocks("child", "", 300)
    expect(build, "lock-held", 1)


def test_a_child_that_works_is_slow() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, REWARD)
    build.child(1, "reward", pid=300).works(REWARD)
    process.blocks("child", "", 300)
    assert verdict(build).state == "slow"


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


def _generating(build: EvidenceBuilder, rank: int) -> None:
    stack = frames(
        "recv_into /usr/lib/python3.11/socket.py:5",
        "post /x/site-packages/requests/api.py:5",
        "generate /home/me/train.py:5",
    )
    build.elsewhere(rank, stack).blocks("socket-receive", "127.0.0.1:8000", 400)


def test_a_dead_engine() -> None:
    build = EvidenceBuilder()
    _generating(build, 0)
    build.child(0, "server", pid=400)
    build.child(0, "engine", pid=401, parent=400).state = "Z"
    found = diagnose(build.build())
    assert (found.verdict.cause, found.verdict.culprits) == ("rollout-engine-dead", (0,))


def test_an_engine_that_makes_no_tokens() -> None:
    build = EvidenceBuilder()
    _generating(build, 0)
    build.child(0, "server", pid=400)
    build.child(0, "engine", pid=401, parent=400)
    values = {"vllm:generation_tokens_total": 900.0, "vllm:num_requests_running": 4.0}
    build.engines = [(EngineLook(400, n, "http://x", values),) for n in (1, 2)]
    said = verdict(build)
    assert (said.cause, said.culprits) == ("rollout-engine-stalled", (0,))


def test_an_engine_that_makes_tokens_is_slow() -> None:
    build = EvidenceBuilder()
    _generating(build, 0)
    build.child(0, "engine", pid=400).works(())
    assert verdict(build).state == "slow"


def test_an_endless_loop_in_the_reward() -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, REWARD).works(REWARD, moves=False)
    expect(build, "reward-busy", 2, state="slow")
    build.waited_s = 3000.0
    expect(build, "reward-busy", 2)


def test_a_rank_held_back_by_its_quota() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(2, UPDATE)
    process.works(UPDATE, share=0.1)
    process.limits = (
        Limits(102, quota_cores=0.1),
        Limits(102, quota_cores=0.1, throttled_ns=1_000_000_000),
    )
    expect(build, "cpu-starved", 2, state="slow")


def test_a_rank_held_back_is_seen_while_the_job_crawls() -> None:
    build = EvidenceBuilder()
    _healthy(build)
    process = build.rank(2)
    process.limits = (
        Limits(102, quota_cores=0.1),
        Limits(102, quota_cores=0.1, throttled_ns=1_000_000_000),
    )
    expect(build, "cpu-starved", 2, state="slow")


def test_a_helper_that_outlived_its_rank_is_not_the_rank() -> None:
    build = EvidenceBuilder()
    helper = without_communication(build, 2)
    helper.member = replace(helper.member, parent=1)
    expect(build, "rank-dead", 2, state="dead")


def test_a_gpu_that_failed() -> None:
    build = EvidenceBuilder()
    build.kernel = [(20.0, "NVRM: Xid (PCI:0000:3b:00): 79, pid=102, GPU has fallen off the bus.")]
    build.gpus = [(), ()]
    expect(build, "gpu-fault", 2)


def test_a_cuda_error_in_a_log() -> None:
    build = EvidenceBuilder()
    build.gpus = [(), ()]
    build.logs = [LogTail(101, "out", 5.0, ("CUDA error: an illegal memory access",))]
    expect(build, "gpu-fault", 1)


def _healthy(build: EvidenceBuilder) -> None:
    """Most ranks of a healthy loop stand in the same collective at any time."""
    build.waited_s = 0.004
    for rank in range(build.world):
        process = build.rank(rank)
        process.cpu_share, process.wakes, process.still_s = 0.17, 145, 0.003


def test_a_healthy_loop() -> None:
    build = EvidenceBuilder()
    _healthy(build)
    assert verdict(build).state == "healthy"
    build.recorded = False
    assert verdict(build).state == "healthy"


@pytest.mark.parametrize(
    ("function", "word"),
    [
        ("save_checkpoint", "checkpoint"),
        ("compile_model", "compiles"),
        ("evaluate", "evaluates"),
        ("rollout", "generates"),
        ("download_dataset", "downloads"),
        ("reward", "rewards"),
    ],
)
def test_long_work_is_slow_for_however_long(function: str, word: str) -> None:
    for waited_s in (4.0, 40.0, 4000.0):
        build = EvidenceBuilder()
        build.waited_s = waited_s
        stack = frames("inner /home/me/m.py:3", f"{function} /home/me/train.py:3")
        build.elsewhere(2, stack).works(stack)
        said = verdict(build)
        assert said.state == "slow", said.summary
        assert said.culprits == (2,)
        assert word in said.summary


def test_a_checkpoint_that_writes_is_slow_though_its_stack_stands() -> None:
    build = EvidenceBuilder()
    build.waited_s = 60.0
    process = build.elsewhere(2, frames("write /me/io.py:3", "save_checkpoint /me/train.py:3"))
    process.state, process.written_bytes, process.still_s = "D", 300_000_000, 0.0
    said = verdict(build)
    assert said.state == "slow"
    assert "300" in said.summary


def test_what_nothing_explains_is_unknown_with_one_command() -> None:
    build = EvidenceBuilder(recorded=False)
    for rank in range(4):
        build.rank(rank).stack, build.rank(rank).still_s = (), 100.0
    said = verdict(build)
    assert said.cause in ("unknown", "user-code-blocked")
    assert said.confirm


def test_dumps_alone() -> None:
    build = EvidenceBuilder()
    build.joins[2] = []
    whole = build.build()
    alone = replace(whole, looks=(), stacks=(), limits=(), blocked=())
    assert diagnose(alone).verdict.culprits == (2,)


def _stopped(build: EvidenceBuilder, rank: int) -> None:
    build.elsewhere(rank, REWARD).state = "T"


def _dead(build: EvidenceBuilder, rank: int) -> None:
    build.rank(rank).state = "Z"


def _asleep(build: EvidenceBuilder, rank: int) -> None:
    build.elsewhere(rank, REWARD).blocks("sleep")


def _other_size(build: EvidenceBuilder, rank: int) -> None:
    build.joins[rank] = []
    build.calls(rank, "all_reduce", size=9)


def _at_work(build: EvidenceBuilder, rank: int) -> None:
    build.elsewhere(rank, UPDATE).works(UPDATE)


CASES: tuple[Callable[[EvidenceBuilder, int], None], ...] = (
    _stopped,
    _dead,
    _asleep,
    _other_size,
    _at_work,
)


@settings(max_examples=25, deadline=None)
@given(
    case=st.sampled_from(CASES),
    culprit=st.integers(0, 4),
    order=st.permutations(range(100, 105)),
)
def test_the_order_of_ranks_never_matters(
    case: Callable[[EvidenceBuilder, int], None], culprit: int, order: list[int]
) -> None:
    build = EvidenceBuilder(ranks=5)
    case(build, culprit)
    plain = diagnose(build.build())
    assert plain.verdict.culprits == (culprit,)
    shuffled = diagnose(build.build(dict(zip(order, range(5), strict=True))))
    assert shuffled == plain
    assert shuffled.taken_unix_ns == UNIX_NS


def test_a_rank_whose_network_is_cut_is_the_end_that_all_connections_in_trouble_share() -> None:
    build = EvidenceBuilder()
    trouble = "ESTABLISHED; 48 bytes are not confirmed by the other end; sent again 5 times"
    build.rank(1).blocks("socket-receive", "10.0.0.1:4001 -> 10.0.0.2:5001", note=trouble)
    build.rank(2).blocks("socket-receive", "10.0.0.2:5003 -> 10.0.0.1:4003", note=trouble)
    build.rank(3).blocks("socket-receive", "10.0.0.1:4003 -> 10.0.0.2:5003", note=trouble)
    verdict = diagnose(build.build()).verdict
    assert (verdict.cause, verdict.culprits) == ("network-silent", (2,))
    assert verdict.summary.startswith("Rank 2 sends and gets no answer")
