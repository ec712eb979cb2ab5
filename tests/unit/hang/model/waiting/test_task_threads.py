"""Jobs as verl's, where the answer is worked out in a side thread of an actor of an actor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import Await, PythonThread, Thread
from tests.evidence import BETWEEN_S, FIRST_NS, SECOND, EvidenceBuilder, FakeProcess, frames

LIBRARY = "/opt/venv/lib/python3.11"
RAY, VERL = f"{LIBRARY}/site-packages/ray", f"{LIBRARY}/site-packages/verl"
LOOP = frames(
    f"Worker.main_loop {RAY}/_private/worker.py:1069",
    f"<module> {RAY}/_private/workers/default_worker.py:323",
)
GETS = (
    f"Worker.get_objects {RAY}/_private/worker.py:1007",
    f"get {RAY}/_private/worker.py:3009",
    f"wrapper {RAY}/_private/client_mode_hook.py:134",
)
STARTED = (
    "Thread.run /usr/lib/python3.11/threading.py:982",
    "Thread._bootstrap_inner /usr/lib/python3.11/threading.py:1045",
)
POOL = ("_worker /usr/lib/python3.11/concurrent/futures/thread.py:83", *STARTED)
EVENTS = (
    "EpollSelector.select /usr/lib/python3.11/selectors.py:468",
    "BaseEventLoop._run_once /usr/lib/python3.11/asyncio/base_events.py:1884",
    "BaseEventLoop.run_forever /usr/lib/python3.11/asyncio/base_events.py:607",
    *STARTED,
)
POLLS = (
    f"ReplayBuffer._wait_for_next_poll {VERL}/trainer/replay_buffer.py:409",
    f"TaskRunner.run {VERL}/trainer/main_ppo.py:155",
)
SCORES = (
    "ask_judge /home/me/rewards.py:28",
    "compute_score /home/me/rewards.py:60",
    f"_call_with_kwargs {VERL}/trainer/ppo/reward.py:38",
    "_WorkItem.run /usr/lib/python3.11/concurrent/futures/thread.py:58",
)
DRIVER, RUNNER, REWARD, ROLLOUT, MONITOR = 50, 60, 70, 80, 90
LAST_NS = FIRST_NS + int(BETWEEN_S * SECOND)


def thread(tid: int, name: str, *lines: str, still_s: float) -> tuple[PythonThread, Thread]:
    """A thread that last ran so long before the last look."""
    ran_ns = LAST_NS - int(still_s * SECOND)
    return PythonThread(tid, name, frames(*lines)), Thread(tid, name, "S", last_ran_ns=ran_ns)


class VerlJob:
    """A driver that waits for a controller, which polls for samples; nobody scores them."""

    def __init__(self, still_s: float = 90.0) -> None:
        self.still_s = still_s
        self.build = EvidenceBuilder(ranks=2, framework="verl")
        for rank in range(2):
            self._idles(self.build.rank(rank), "ray::WorkerDict")
            self.build.joins[rank] = []
        self.driver = self._other(DRIVER, "python -m verl.trainer.main_ppo")
        self.driver.stack = frames(*GETS, f"run_ppo {VERL}/trainer/main_ppo.py:93")
        self.runner = self._other(RUNNER, "ray::TaskRunner.run")
        self.runner.stack = (*frames(*POLLS), *LOOP)
        self.runner.blocks("sleep")
        for process in (self.driver, self.runner):
            process.still_s, process.wakes = 0.4, 2  # both wake by a clock
        self.reward = self._with_loop(REWARD, "ray::RewardLoopWorker.compute_score")
        self.rollout = self._with_loop(ROLLOUT, "ray::RolloutServer")
        self.rollout.threads.append(thread(84, "asyncio_0", *POOL, still_s=still_s))

    def scores(self, *lines: str, still_s: float | None = None) -> None:
        """A thread of the reward's pool is in these lines."""
        tid = 71 + len(self.reward.threads)
        age_s = self.still_s if still_s is None else still_s
        self.reward.threads.append(thread(tid, "asyncio_0", *lines, *POOL, still_s=age_s))

    def works(self) -> None:
        """The last of the reward's threads uses a core."""
        python, thread = self.reward.threads[-1]
        self.reward.threads[-1] = (python, replace(thread, state="R"))

    def verdict(self) -> Verdict:
        return diagnose(self.build.build()).verdict

    def _with_loop(self, pid: int, title: str) -> FakeProcess:
        process = self._other(pid, title)
        self._idles(process, title)
        loop = thread(pid + 1, "AsyncIO Thread: default", *EVENTS, still_s=self.still_s)
        process.threads.append(loop)
        return process

    def _idles(self, process: FakeProcess, title: str) -> None:
        process.member = replace(process.member, command=title, name=title[:15])
        process.stack, process.wchan, process.still_s, process.wakes = LOOP, "ep_poll", 0.1, 12

    def _other(self, pid: int, command: str) -> FakeProcess:
        process = self.build.child(0, "ray", pid=pid, parent=1)
        process.member = replace(process.member, command=command, rank=None)
        return process


def test_the_line_in_a_side_thread_of_another_actor_is_named() -> None:
    job = VerlJob()
    job.scores(*SCORES)
    verdict = job.verdict()
    assert (verdict.state, verdict.cause, verdict.culprits) == ("stuck", "reward-blocked", ())
    assert "RewardLoopWorker.compute_score" in verdict.summary
    assert f"pid {REWARD}" in verdict.summary
    assert "rewards.py:28" in verdict.summary
    assert verdict.victims == (0, 1)


@pytest.mark.parametrize(("still_s", "state"), [(40.0, "slow"), (90.0, "stuck")])
def test_a_coroutine_that_was_read_has_its_line(still_s: float, state: str) -> None:
    job = VerlJob(still_s)
    line = frames("ask_judge /home/me/rewards.py:28")
    job.reward.awaits = [Await(REWARD, 71, line, "asyncio.Semaphore")]
    verdict = job.verdict()
    assert (verdict.state, verdict.cause) == (state, "reward-blocked")
    assert "RewardLoopWorker.compute_score" in verdict.summary
    assert "awaits an asyncio.Semaphore in reward (rewards.py:28, ask_judge)" in verdict.summary


def test_a_coroutine_that_awaits_another_actor_leads_to_that_one() -> None:
    job = VerlJob()
    generates = frames("generate /home/me/agents.py:9")
    job.rollout.member = replace(job.rollout.member, command="ray::AgentLoopWorker.generate")
    gate = frames("acquire /usr/lib/python3.11/asyncio/locks.py:387", "run /home/me/agents.py:7")
    job.rollout.awaits = [
        Await(ROLLOUT, 81, generates, "ray", count=8),
        Await(ROLLOUT, 81, gate, "asyncio.Semaphore", count=56),
    ]
    model = view.build(job.build.build())
    assert [proc.pid for proc in tasks.at_work(model)] == [REWARD]
    assert model.by_pid[ROLLOUT].asks


def test_a_library_s_pool_and_ray_s_agents_have_no_task() -> None:
    job = VerlJob()
    beside = (f"poll {LIBRARY}/site-packages/zmq/poll.py:9", *SCORES[-1:])
    job.rollout.threads.append(thread(85, "io_0", *beside, *POOL, still_s=1.0))
    agent = job._other(MONITOR, "ray::DashboardAgent")
    agent.stack = frames(*EVENTS[:3], f"run {LIBRARY}/site-packages/aiohttp/web.py:5")
    job.scores(*SCORES)
    assert [proc.pid for proc in tasks.at_work(view.build(job.build.build()))] == [REWARD]


# The threads whose runs count, and the one that decides.


def found_of(job: VerlJob, pid: int) -> tuple[view.JobView, view.Process]:
    model = view.build(job.build.build())
    return model, model.by_pid[pid]


def own(job: VerlJob, pid: int) -> set[int]:
    return set(tasks.own_threads(*found_of(job, pid)))


def decides(job: VerlJob, pid: int) -> tuple[int, str]:
    """Which thread decides for an actor, and what that did."""
    through = tasks.seen_through(*found_of(job, pid))
    return through.tid, through.activity.kind


LIBRARY_TASK = (f"poll {LIBRARY}/site-packages/verl/workers/actor.py:9",)


@pytest.mark.parametrize(
    ("threads", "tid"),
    [
        ((), 71),  # the event loop
        (((SCORES, 9.0),), 72),
        (((SCORES, 9.0), (SCORES, 20.0)), 73),  # who has stood longest
        (((SCORES, 20.0), (SCORES, 9.0)), 72),
        (((LIBRARY_TASK, 20.0), (SCORES, 9.0)), 73),  # the user's own code
        (((SCORES, 9.0), (SCORES, 9.0)), 72),
        (((SCORES, 9.0), (SCORES, None)), 72),
    ],
)
def test_which_thread_decides_for_an_actor(
    threads: tuple[tuple[tuple[str, ...], float | None], ...], tid: int
) -> None:
    job = VerlJob()
    for lines, still_s in threads:
        job.scores(*lines, still_s=still_s or 0.0)
        if still_s is None:
            python, thread = job.reward.threads[-1]
            job.reward.threads[-1] = (python, replace(thread, last_ran_ns=0))
    assert decides(job, REWARD) == (tid, "still")


@pytest.mark.parametrize("how", ["stopped", "at its task", "without a stack"])
def test_an_actor_decides_for_itself_otherwise(how: str) -> None:
    job = VerlJob()
    job.scores(*SCORES)
    evidence = job.build.build()
    if how == "stopped":
        job.reward.state, job.reward.wakes = "T", 0
    elif how == "at its task":
        job.reward.stack = frames("score /home/me/rewards.py:3")
    model = view.build(job.build.build())
    if how == "without a stack":
        stacks = tuple(
            tuple(replace(stack, threads=()) if stack.pid == REWARD else stack for stack in look)
            for look in evidence.stacks
        )
        model = view.build(replace(evidence, stacks=stacks))
    proc = model.by_pid[REWARD]
    assert tasks.seen_through(model, proc) is proc


def test_what_a_thread_did_is_read_off_its_own_stacks_and_looks() -> None:
    job = VerlJob()
    job.scores(*SCORES)
    evidence = job.build.build()
    moved = frames("parse /home/me/r.py:3", "read /home/me/r.py:9", *SCORES[1:], *POOL)
    native = replace(evidence.stacks[1][0], pid=REWARD, threads=(), native=True)
    later = tuple(
        replace(
            stack,
            threads=tuple(replace(t, frames=moved) if t.tid == 72 else t for t in stack.threads),
        )
        if stack.pid == REWARD
        else stack
        for stack in evidence.stacks[1]
    )
    changed = replace(evidence, stacks=(evidence.stacks[0], (native, *later)))
    model = view.build(changed)
    assert tasks.activity_of(model, REWARD, 72).kind == "working"
    assert tasks.activity_of(model, REWARD, 71).kind == "still"
    assert tasks.activity_of(model, ROLLOUT, 72).kind == "unknown"
