"""Processes that a rank has started and waits for."""

from __future__ import annotations

from grpo_doctor_probes.evidence import LogTail, PythonThread, Thread
from tests.evidence import EvidenceBuilder, frames
from tests.verdicts import REWARD, expect, verdict


def test_a_child_that_never_ends() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, REWARD)
    build.child(1, "reward", pid=300)
    process.blocks("child", "", 300)
    said = expect(build, "child-stuck", 1).verdict
    assert "pid 300" in said.summary


def test_a_child_that_works_is_slow() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, REWARD)
    build.child(1, "reward", pid=300).works(REWARD)
    process.blocks("child", "", 300)
    assert verdict(build).state == "slow"


COMMUNICATES = frames(
    "select /usr/lib/python3.11/selectors.py:415",
    "_communicate /usr/lib/python3.11/subprocess.py:2105",
    "run /usr/lib/python3.11/subprocess.py:550",
    "check /home/me/rewards.py:31",
    "reward /home/me/train.py:40",
)


def test_a_dead_child_beside_the_one_whose_output_is_read() -> None:
    """A program that failed earlier and was not waited for yet: nobody is held up by it."""
    build = EvidenceBuilder()
    build.waited_s = 4.0
    process = build.elsewhere(1, COMMUNICATES)
    process.still_s = 4.0
    process.blocks("pipe-read", "pipe:[7]", 301, peers_known=True)
    failed, sandbox = build.child(1, "reward", pid=300), build.child(1, "reward", pid=301)
    failed.state, failed.exit_code = "Z", 256
    sandbox.stack, sandbox.still_s = frames("solve /tmp/x.py:3"), 3.5
    sandbox.wchan = "hrtimer_nanosleep"
    said = expect(build, "child-stuck", 1, state="slow").verdict
    assert "pid 301" in said.summary


POOL = "/usr/lib/python3.11/multiprocessing/pool.py"
MAPS = frames(
    "Condition.wait /usr/lib/python3.11/threading.py:327",
    f"ApplyResult.get {POOL}:768",
    f"Pool.map {POOL}:367",
    "check /home/me/rewards.py:31",
    "reward /home/me/train.py:40",
)
TAKES_TASK = frames("get /usr/lib/python3.11/multiprocessing/queues.py:365", f"worker {POOL}:114")


def idle_pool(*threads: str) -> EvidenceBuilder:
    """A rank waits for its pool, whose workers are all idle; these threads of the pool are left."""
    build = EvidenceBuilder()
    process = build.elsewhere(1, MAPS)
    for place, function in enumerate(threads):
        shown = PythonThread(901 + place, "Thread-1", frames(f"Pool.{function} {POOL}:500"))
        process.threads.append((shown, Thread(901 + place, "python", "S", last_ran_ns=1)))
    for pid in (300, 301):
        build.child(1, "helper", pid=pid).stack = TAKES_TASK
    return build


def test_a_pool_whose_task_went_with_its_worker() -> None:
    build = idle_pool("_handle_workers", "_handle_tasks", "_handle_results")
    assert "a pool worker died" in expect(build, "child-stuck", 1).verdict.summary


def test_a_pool_whose_thread_for_results_has_ended() -> None:
    build = idle_pool("_handle_workers", "_handle_tasks")
    trace = (
        "Exception in thread Thread-3 (_handle_results):",
        "Traceback (most recent call last):",
        "    return loads(buffer)",
        "TypeError: __init__() missing 1 required positional argument: 'text'",
        "step 31",
    )
    build.logs.append(LogTail(101, "/run/job.log", 8.0, trace))
    said = expect(build, "child-stuck", 1).verdict
    assert "died" not in said.summary
    assert "takes their results has ended" in said.summary
    assert ("log", trace[3]) in [(one.source, one.text) for one in said.evidence]


def test_a_child_at_the_other_end_that_is_stopped() -> None:
    build = EvidenceBuilder()
    reads = frames("read_rows /home/me/rows.py:3", "rollout /home/me/train.py:44")
    build.elsewhere(1, reads).blocks("pipe-read", "pipe:[7]", 300)
    build.child(1, "helper", pid=300).state = "T"
    assert "pid 300" in expect(build, "child-stuck", 1).verdict.summary


def test_a_process_of_another_parent_at_the_other_end_is_no_child() -> None:
    build = EvidenceBuilder()
    reads = frames("read_rows /home/me/rows.py:3", "rollout /home/me/train.py:44")
    build.elsewhere(1, reads).blocks("pipe-read", "pipe:[7]", 300)
    build.child(1, "helper", pid=300, parent=1).state = "T"
    expect(build, "user-code-blocked", 1)
