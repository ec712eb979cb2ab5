"""Jobs whose ranks are actors of Ray: an idle one is no culprit, whoever has a task may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.matching.model import Matching, Pace
from grpo_doctor.hang.model.view import JobView
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor.hang.verdict import Diagnosis
from grpo_doctor_probes.evidence import Frame, PythonThread, Role, Thread
from tests.evidence import BETWEEN_S, FIRST_NS, SECOND, EvidenceBuilder, FakeProcess, frames

RAY = "/opt/venv/lib/python3.11/site-packages/ray"
LOOP = (
    f"main_loop {RAY}/_private/worker.py:1069",
    f"<module> {RAY}/_private/workers/default_worker.py:322",
)
TRACED = f"_resume_span {RAY}/util/tracing/tracing_helper.py:487"
GET = f"get {RAY}/_private/worker.py:2771"
DRIVER, ROLLOUT = 50, 60


def in_method(*lines: str) -> tuple[Frame, ...]:
    """The stack of an actor in one of its methods."""
    return frames(*lines, TRACED, *LOOP)


class RayJob:
    """Three policy actors without a task, one that generates, and the driver, which asks it."""

    def __init__(self) -> None:
        self.build = EvidenceBuilder(ranks=3, framework="unknown")
        for rank in range(3):
            proc = self.build.rank(rank)
            self._retitle(proc, "ray::PolicyWorker")
            proc.stack, proc.wchan, proc.still_s, proc.wakes = frames(*LOOP), "ep_poll", 0.1, 12
            self.build.joins[rank] = []
        self.rollout = self._other(ROLLOUT, "ray::RolloutActor.generate")
        self.rollout.stack = in_method("generate /home/me/train.py:72")
        self.rollout.still_s, self.rollout.wchan = 60.0, "hrtimer_nanosleep"
        self.driver = self._other(DRIVER, "python train.py")
        self.driver.stack = frames(
            GET, "main /home/me/train.py:97", "<module> /home/me/train.py:99"
        )
        self.driver.still_s = 60.0

    def calls(
        self, rank: int, stack: tuple[Frame, ...], method: str = "update_policy"
    ) -> FakeProcess:
        """This rank has a task."""
        proc = self.build.rank(rank)
        self._retitle(proc, f"ray::PolicyWorker.{method}")
        proc.stack, proc.still_s, proc.wakes = stack, 60.0, 0
        return proc

    def generates_nothing(self) -> None:
        """No task is left but the ranks'."""
        self._retitle(self.rollout, "ray::RolloutActor")
        self.rollout.stack = frames(*LOOP)

    def diagnosis(self) -> Diagnosis:
        return diagnose(self.build.build())

    def _other(self, pid: int, command: str) -> FakeProcess:
        process = self.build.child(0, "ray", pid=pid, parent=1)
        process.member = replace(process.member, command=command, rank=None)
        return process

    def _retitle(self, process: FakeProcess, title: str) -> None:
        process.member = replace(process.member, command=title, name=title[:15])


def test_a_driver_may_wait_for_what_nobody_works_out() -> None:
    """On this host, so that only a very long time says that it is stuck."""
    job = RayJob()
    job.generates_nothing()
    job.driver.still_s, job.driver.wakes = 0.5, 2  # ray.get wakes once a second
    assert job.diagnosis().verdict.state == "slow"
    for rank in range(3):
        job.build.calls(rank, "all_reduce", done=True)
    job.build.waited_s = 900.0
    verdict = job.diagnosis().verdict
    assert verdict.state == "stuck"
    assert verdict.summary.startswith(f"The driver (pid {DRIVER}) waits for a Ray result")
    assert "train.py:97" in verdict.summary


def test_a_task_may_be_done_by_another_thread_than_the_main_one() -> None:
    """Of an actor with async methods."""
    job = RayJob()
    inner = in_method("judge /home/me/train.py:80", "score /home/me/train.py:81")[:-2]
    work = PythonThread(777, "AsyncIO Thread: default", inner)
    job.rollout.stack = frames(*LOOP)
    job.rollout.threads = [(work, Thread(777, "ray", "S", last_ran_ns=1))]
    assert "train.py:80" in job.diagnosis().verdict.summary


def test_threads_of_ray_s_own_do_not_count_as_work() -> None:
    job = RayJob()
    ticks = Thread(961, "worker.io", "S", last_ran_ns=FIRST_NS + int(BETWEEN_S * SECOND))
    job.rollout.threads = [(PythonThread(961, "", ()), ticks)]
    job.rollout.still_s = job.driver.still_s = 45.0
    verdict = job.diagnosis().verdict
    assert verdict.state == "stuck"


# Who asks, who has a task, and who may answer.

VERL = "/opt/venv/lib/python3.11/site-packages/verl"
POLLS = frames(f"wait_for_samples {VERL}/trainer/buffer.py:9", "main /home/me/train.py:3")


def scene_of(job: RayJob) -> JobView:
    return view.build(job.build.build())


@pytest.mark.parametrize(
    ("role", "command", "stack", "asleep", "state", "asks"),
    [
        ("ray", "python train.py", POLLS, True, "S", True),
        ("ray", "ray::TaskRunner.run", POLLS, True, "S", True),
        ("helper", "ray::TaskRunner.run", POLLS, True, "S", True),
        ("helper", "python train.py", POLLS, True, "S", False),
        ("ray", "python train.py", POLLS, False, "S", False),
        ("ray", "python train.py", frames("main /home/me/train.py:3"), True, "S", False),
        ("ray", "python train.py", POLLS, True, "T", False),
        ("ray", "python train.py", frames(GET, "main /home/me/train.py:3"), False, "S", True),
        ("ray", "python train.py", frames(GET, "main /home/me/train.py:3"), False, "T", False),
    ],
)
def test_who_waits_for_an_answer_or_sleeps_between_asking_for_it(
    role: Role, command: str, stack: tuple[Frame, ...], asleep: bool, state: str, asks: bool
) -> None:
    job = RayJob()
    member = replace(job.rollout.member, role=role, command=command)
    job.rollout.member, job.rollout.stack, job.rollout.state = member, stack, state
    if asleep:
        job.rollout.blocks("sleep")
    proc = scene_of(job).by_pid[ROLLOUT]
    assert proc.asks is asks


@pytest.mark.parametrize(
    ("paces", "quiet_s"),
    [
        ((), None),
        ((Pace(0, last_enqueued_ns=3 * SECOND, taken_ns=9 * SECOND),), 6.0),
        (
            (
                Pace(0, last_enqueued_ns=3 * SECOND, taken_ns=9 * SECOND),
                Pace(1, last_enqueued_ns=7 * SECOND, taken_ns=9 * SECOND),
            ),
            2.0,
        ),
        ((Pace(0, last_enqueued_ns=3 * SECOND),), None),
        ((Pace(0, taken_ns=9 * SECOND),), None),
        ((Pace(0, last_enqueued_ns=0, taken_ns=9 * SECOND),), 9.0),
    ],
)
def test_since_when_no_rank_has_begun_a_collective(
    paces: tuple[Pace, ...], quiet_s: float | None
) -> None:
    with_rhythms = replace(scene_of(RayJob()), matching=Matching(paces=paces))
    assert tasks.quiet_s(with_rhythms) == quiet_s
