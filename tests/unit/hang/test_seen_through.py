"""A rank that waits for a thread or a process of its own: the verdict is about that one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model import view
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import Blocked, Frame, PythonThread, Thread
from tests.evidence import EvidenceBuilder, FakeProcess, frames

LIB = "/usr/lib/python3.11"
CHECK = frames("check /home/me/rewards.py:31", "grade /home/me/rewards.py:40")
RECEIVES = frames(
    f"_recv {LIB}/multiprocessing/connection.py:383",
    f"recv {LIB}/multiprocessing/connection.py:254",
    "ask /home/me/workers.py:12",
    "reward /home/me/train.py:40",
)
POOL = frames(
    f"wait {LIB}/threading.py:320",
    f"result {LIB}/concurrent/futures/_base.py:451",
    "step /home/me/train.py:9",
)


def verdict(build: EvidenceBuilder) -> Verdict:
    return diagnose(build.build()).verdict


def with_thread(process: FakeProcess, stack: tuple[Frame, ...], name: str = "worker") -> None:
    task = Thread(901, name, "S", "futex_do_wait", last_ran_ns=1)
    process.threads.append((PythonThread(901, name, stack), task))


def worker(build: EvidenceBuilder, rank: int, kind: str = "socket-receive") -> FakeProcess:
    """The rank waits for an answer of a process that it has started."""
    process = build.elsewhere(rank, RECEIVES)
    process.blocks(kind, "unix socket [7]", 200, fd=5, peers_known=True)
    return build.child(rank, "reward", pid=200)


@pytest.mark.parametrize("kind", ["socket-receive", "pipe-read"])
@pytest.mark.parametrize("moves", [True, False])
def test_a_worker_that_computes_makes_its_rank_busy(kind: str, moves: bool) -> None:
    build = EvidenceBuilder()
    worker(build, 2, kind).works(CHECK, moves=moves)
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("slow", "reward-busy", (2,))
    assert f"rewards.py:{31 + moves}, check" in outcome.summary


def test_a_pool_worker_that_computes_makes_its_rank_busy() -> None:
    build = EvidenceBuilder()
    build.elsewhere(1, frames(*(f"{f.function} {f.file}:{f.line}" for f in POOL), *_REWARD))
    build.child(1, "reward", pid=200).stack = frames(f"get {LIB}/multiprocessing/queues.py:103")
    build.child(1, "reward", pid=201).works(CHECK)
    outcome = verdict(build)
    assert (outcome.cause, outcome.culprits) == ("reward-busy", (1,))
    assert "pid 201" in outcome.summary


_REWARD = ("reward /home/me/train.py:40",)


def test_a_rank_between_two_polls_waits_for_its_child_that_computes() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, frames("poll /home/me/workers.py:12", "reward /home/me/m.py:4"))
    process.wakes = 10
    process.blocks("poll")
    build.child(1, "reward", pid=200).works(CHECK)
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("slow", "reward-busy", (1,))
    assert "pid 200" in outcome.summary


def test_a_stopped_worker_behind_a_socket_is_hard_evidence() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    worker(build, 2).state = "T"
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", "reward-blocked", (2,))
    assert "which is stopped" in outcome.summary


def test_the_end_of_a_chain_of_helpers_is_named() -> None:
    build = EvidenceBuilder()
    middle = worker(build, 2)
    middle.stack = CHECK
    middle.blocks("pipe-read", "pipe:[8]", 300, fd=3, peers_known=True)
    build.child(2, "helper", pid=300, parent=200).state = "T"
    assert "pid 300 (python helper.py), which is stopped" in verdict(build).summary


def test_a_thread_of_a_pool_tells_the_phase_and_the_line() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(3, POOL)
    with_thread(process, (*CHECK, *frames(f"_worker {LIB}/concurrent/futures/thread.py:83")))
    outcome = verdict(build)
    assert (outcome.cause, outcome.culprits, outcome.phase) == ("reward-blocked", (3,), "reward")
    assert "rewards.py:31, check" in outcome.summary


def test_a_loggers_thread_is_not_taken_for_the_producer_of_a_queue() -> None:
    build = EvidenceBuilder()
    waits = frames(f"wait {LIB}/threading.py:320", f"get {LIB}/queue.py:171", "step /me/t.py:9")
    process = build.elsewhere(3, waits)
    with_thread(process, frames("flush /home/me/logs.py:3", "loop /home/me/logs.py:9"))
    outcome = verdict(build)
    assert outcome.culprits == (3,)
    assert "t.py:9, step" in outcome.summary
    assert "logs.py" not in outcome.summary


def test_a_rank_that_left_its_program_while_a_thread_keeps_it() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(
        0,
        frames(f"_wait_for_tstate_lock {LIB}/threading.py:1132", f"_shutdown {LIB}/threading.py:5"),
    )
    with_thread(process, frames("loop /home/me/uploads.py:9"))
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", "rank-dead", (0,))
    assert "has left its main program" in outcome.summary
    assert "uploads.py:9, loop" in outcome.summary


def test_a_prompt_at_a_terminal_is_no_storage() -> None:
    build = EvidenceBuilder()
    debugger = frames(f"cmdloop {LIB}/cmd.py:126", f"interaction {LIB}/pdb.py:357")
    process = build.elsewhere(1, (*debugger, *frames("update /home/me/train.py:4")))
    process.blocks("file", "/dev/pts/3", fd=0)
    outcome = verdict(build)
    assert (outcome.cause, outcome.culprits) == ("user-code-blocked", (1,))
    assert "is in a debugger at its terminal /dev/pts/3" in outcome.summary


@pytest.mark.parametrize(
    ("wchan", "cause"),
    [
        ("mem_cgroup_oom_synchronize", "oom-killed"),
        ("kernel_clone", "child-stuck"),
        ("nvidia_ioctl", "gpu-fault"),
        ("nfs_wait_bit_killable", "storage-blocked"),
    ],
)
def test_a_sleep_that_no_signal_ends_is_told_apart_by_its_function(wchan: str, cause: str) -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(2, frames("clip /home/me/train.py:31", "main t.py:9"))
    process.state, process.wchan, process.still_s = "D", wchan, 60.0
    build.waited_s = 60.0
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", cause, (2,))


def test_a_rank_that_retries_is_not_busy() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, CHECK)
    process.later_stack = tuple(replace(frame, line=frame.line + 1) for frame in CHECK)
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("slow", "reward-blocked", (1,))


@pytest.mark.parametrize(
    "stack",
    [
        frames("acquire /x/site-packages/filelock/_api.py:344", "load /home/me/cache.py:7"),
        frames("wait /x/site-packages/torch/utils/file_baton.py:46", "build /home/me/ops.py:7"),
    ],
)
def test_a_lock_file_that_a_library_polls(stack: tuple[Frame, ...]) -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, stack)
    process.wakes = 20
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", "lock-held", (1,))


def test_a_pools_thread_in_a_file_system_that_is_silent_is_what_its_rank_waits_for() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(2, POOL)
    saves = frames("save /x/site-packages/torch/serialization.py:9")
    with_thread(process, (*saves, *frames(f"_worker {LIB}/concurrent/futures/thread.py:83")))
    process.blocked.append(Blocked(102, 901, "file", target="/mnt/models/1.pt"))
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", "storage-blocked", (2,))
    assert "/mnt/models/1.pt" in outcome.summary


def test_a_connection_that_a_stopped_child_has_not_accepted() -> None:
    build = EvidenceBuilder()
    build.waited_s = 4.0
    process = build.elsewhere(0, frames("read_state /home/me/train.py:4", "step /home/me/t.py:9"))
    process.blocks("socket-receive", "unix socket [7]", fd=5, peers_known=True)
    build.child(0, "helper", pid=300).state = "T"
    diagnosis = diagnose(build.build())
    outcome = diagnosis.verdict
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", "child-stuck", (0,))
    assert "pid 300 (python helper.py) is stopped" in outcome.summary
    assert outcome.confirm[0].startswith("kill -CONT 300 ")


def test_a_stopped_child_explains_no_wait_for_another_process() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, CHECK)
    process.blocks("socket-receive", "127.0.0.1:4000 -> 127.0.0.1:80", 700, peers_known=True)
    build.child(0, "helper", pid=300).state = "T"
    assert verdict(build).cause == "reward-blocked"


def test_an_evaluation_inside_of_a_reward_is_a_reward() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(
        1, frames("evaluate_answer /home/me/m.py:3", "reward /home/me/m.py:9")
    )
    process.works(process.stack, moves=False)
    outcome = verdict(build)
    assert (outcome.cause, outcome.culprits, outcome.phase) == ("reward-busy", (1,), "reward")


def test_an_answer_of_a_rank_that_waits_is_no_long_work() -> None:
    build = EvidenceBuilder()
    asks = frames("read_assignment /home/me/train.py:4", "rollout /home/me/train.py:9")
    build.elsewhere(3, asks).blocks("socket-receive", "127.0.0.1:1 -> 127.0.0.1:2", 100, fd=3)
    outcome = verdict(build)
    assert (outcome.state, outcome.culprits) == ("stuck", (3,))


@pytest.mark.parametrize(
    ("innermost", "waits"),
    [
        ("_engine_run_backward /x/site-packages/torch/autograd/graph.py:823", True),
        ("clip /home/me/train.py:12", False),
    ],
)
def test_a_rank_that_is_behind_waits_only_inside_of_torch(innermost: str, waits: bool) -> None:
    """A backward pass of DDP stands in no call of torch.distributed."""
    build = EvidenceBuilder()
    for rank in (0, 1, 2):
        build.rank(rank).stack = frames(innermost, "update /home/me/train.py:40")
        build.calls(rank, "all_reduce", group="2", number=2)
    build.calls(3, "all_reduce", group="2", number=1, done=True)
    build.calls(3, "all_reduce")
    ranks = view.build(build.build()).by_rank
    assert ranks[0].waits is waits
    assert ranks[3].waits


def test_who_writes_to_a_manager_is_waited_for_and_not_its_server() -> None:
    build = EvidenceBuilder()
    server = worker(build, 2)
    server.stack = frames(f"Server.serve_forever {LIB}/multiprocessing/managers.py:3")
    server.wakes, server.still_s = 5, 0.1
    build.child(2, "helper", pid=300).stack = CHECK
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", "reward-blocked", (2,))
    assert "pid 300" in outcome.summary


def test_a_loaders_worker_that_computes_keeps_the_batch_back() -> None:
    build = EvidenceBuilder()
    asks = frames("recv /home/me/rows.py:4", "next_batch /home/me/train.py:9")
    build.elsewhere(2, asks).blocks("pipe-read", "pipe:[7]", 200, fd=5, peers_known=True)
    build.child(2, "helper", pid=200).works(frames("filter /home/me/rows.py:31"))
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("slow", "dataload-blocked", (2,))


@pytest.mark.parametrize(("state", "wchan"), [("D", "jbd2_log_wait"), ("S", "fuse_request_wait")])
def test_a_full_queue_whose_reader_writes_to_a_disk_that_stands(state: str, wchan: str) -> None:
    build = EvidenceBuilder()
    puts = frames(f"wait {LIB}/threading.py:320", f"put {LIB}/queue.py:140", "log /home/me/t.py:9")
    process = build.elsewhere(3, puts)
    writes = frames("flush /x/site-packages/tensorboard/writer.py:3")
    task = Thread(901, "writer", state, wchan, last_ran_ns=1)
    process.threads.append((PythonThread(901, "writer", writes), task))
    process.blocked.append(Blocked(103, 901, "file", target="/runs/events.1"))
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", "storage-blocked", (3,))


def test_recorders_that_never_recorded_anything_are_off() -> None:
    build = EvidenceBuilder()
    for rank in range(4):
        build.rank(rank).stack = frames("wait /home/me/train.py:4")
        build.rank(rank).still_s = 1.0
    evidence = build.build()
    empty = b'{"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": []}'
    dumps = tuple(replace(dump, data=empty) for dump in evidence.dumps)
    alone = diagnose(replace(evidence, dumps=dumps, looks=(), stacks=())).verdict
    assert alone.cause == "unknown"
    assert "TORCH_FR_BUFFER_SIZE" in alone.fixes[0].text


def test_a_librarys_thread_that_sent_what_the_server_does_not_read() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, CHECK)
    process.blocks("poll")
    more = {"tid": 950, "peers_known": True, "peer_unread_bytes": 82}
    process.blocks("socket-receive", "127.0.0.1:4 -> 127.0.0.1:5", 700, **more)
    build.child(1, "server", pid=700, parent=1)
    outcome = verdict(build)
    assert (outcome.state, outcome.cause, outcome.culprits) == ("stuck", "reward-blocked", (1,))
    assert "127.0.0.1:5" in outcome.summary
