"""Jobs whose ranks are actors of Ray: an idle one is no culprit, whoever has a task may be."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Diagnosis
from grpo_doctor_probes.evidence import Frame, PythonThread, Thread
from tests.evidence import (
    BETWEEN_S,
    FIRST_NS,
    SECOND,
    EvidenceBuilder,
    Process,
    collective,
    frames,
)

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
            actor = self.build.rank(rank)
            self._retitle(actor, "ray::PolicyWorker")
            actor.stack, actor.wchan, actor.still_s, actor.wakes = frames(*LOOP), "ep_poll", 0.1, 12
            self.build.joins[rank] = []
        self.rollout = self._other(ROLLOUT, "ray::RolloutActor.generate")
        self.rollout.stack = in_method("generate /home/me/train.py:72")
        self.rollout.still_s, self.rollout.wchan = 60.0, "hrtimer_nanosleep"
        self.driver = self._other(DRIVER, "python train.py")
        self.driver.stack = frames(
            GET, "main /home/me/train.py:97", "<module> /home/me/train.py:99"
        )
        self.driver.still_s = 60.0

    def calls(self, rank: int, stack: tuple[Frame, ...], method: str = "update_policy") -> Process:
        """This rank has a task."""
        actor = self.build.rank(rank)
        self._retitle(actor, f"ray::PolicyWorker.{method}")
        actor.stack, actor.still_s, actor.wakes = stack, 60.0, 0
        return actor

    def generates_nothing(self) -> None:
        """No task is left but the ranks'."""
        self._retitle(self.rollout, "ray::RolloutActor")
        self.rollout.stack = frames(*LOOP)

    def diagnosis(self) -> Diagnosis:
        return diagnose(self.build.build())

    def _other(self, pid: int, command: str) -> Process:
        process = self.build.child(0, "ray", pid=pid, parent=1)
        process.member = replace(process.member, command=command, rank=None)
        return process

    def _retitle(self, process: Process, title: str) -> None:
        process.member = replace(process.member, command=title, name=title[:15])


def test_idle_actors_and_a_rollout_at_work_are_healthy() -> None:
    job = RayJob()
    job.rollout.works(in_method("sample /home/me/train.py:68", "generate /home/me/train.py:72"))
    verdict = job.diagnosis().verdict
    assert (verdict.state, verdict.culprits) == ("healthy", ())


def test_a_rollout_that_has_only_begun_is_not_stuck() -> None:
    job = RayJob()
    job.rollout.still_s = job.driver.still_s = 2.5
    assert job.diagnosis().verdict.state in ("healthy", "slow")


def test_an_actor_that_does_not_answer_is_named_with_its_method() -> None:
    said = RayJob().diagnosis()
    assert (said.verdict.state, said.verdict.cause) == ("stuck", "rollout-engine-stalled")
    assert said.verdict.culprits == ()
    assert f"RolloutActor.generate (pid {ROLLOUT})" in said.verdict.summary
    assert "train.py:72" in said.verdict.summary
    assert [node.id for node in said.nodes if node.guilty] == [f"pid:{ROLLOUT}"]


def test_a_stopped_actor_is_named() -> None:
    job = RayJob()
    job.rollout.state = "T"
    verdict = job.diagnosis().verdict
    assert verdict.state == "stuck"
    assert f"RolloutActor.generate (pid {ROLLOUT}) is stopped" in verdict.summary


def test_the_driver_itself_may_hold_everybody_up() -> None:
    job = RayJob()
    job.generates_nothing()
    job.driver.stack = frames("ask_judge /home/me/train.py:31", "main /home/me/train.py:95")
    verdict = job.diagnosis().verdict
    assert verdict.state == "stuck"
    assert verdict.summary.startswith(f"The driver (pid {DRIVER})")
    assert "train.py:31" in verdict.summary


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
    assert verdict.summary.startswith(f"The driver (pid {DRIVER}) waits for an answer of Ray")
    assert "train.py:97" in verdict.summary


def test_the_only_rank_with_a_task_is_the_culprit() -> None:
    job = RayJob()
    job.generates_nothing()
    job.calls(1, in_method("save /home/me/train.py:40"), "save")
    said = job.diagnosis()
    assert (said.verdict.state, said.verdict.culprits) == ("stuck", (1,))
    assert said.verdict.victims == (0, 2)


def test_a_rank_that_asks_for_a_lost_answer() -> None:
    job = RayJob()
    job.generates_nothing()
    for rank in (0, 2):
        job.calls(rank, (*collective("all_reduce")[:2], *in_method("update_policy /home/t.py:31")))
        del job.build.joins[rank]
    job.calls(1, in_method(GET, "fetch /home/me/train.py:45"))
    verdict = job.diagnosis().verdict
    assert (verdict.state, verdict.culprits) == ("stuck", (1,))
    assert "waits for an answer of Ray" in verdict.summary
    assert "train.py:45" in verdict.summary


def test_an_idle_rank_is_the_culprit_where_others_are_in_a_collective() -> None:
    """Its method has come to its end, or was never called."""
    job = RayJob()
    job.generates_nothing()
    for rank in (0, 2):
        job.calls(rank, (*collective("all_reduce")[:2], *in_method("update_policy /home/t.py:31")))
        del job.build.joins[rank]
    job.build.waited_s = 90.0
    verdict = job.diagnosis().verdict
    assert (verdict.state, verdict.cause) == ("stuck", "collective-skipped")
    assert verdict.culprits == (1,)
    assert "has no task of Ray" in verdict.summary


def test_a_task_may_be_done_by_another_thread_than_the_main_one() -> None:
    """Of an actor with async methods."""
    job = RayJob()
    inner = in_method("judge /home/me/train.py:80", "score /home/me/train.py:81")[:-2]
    work = PythonThread(777, "AsyncIO Thread: default", inner)
    job.rollout.stack = frames(*LOOP)
    job.rollout.threads = [(work, Thread(777, "ray", "S", last_ran_ns=1))]
    assert "train.py:80" in job.diagnosis().verdict.summary


def test_idle_ranks_are_the_victims_of_an_actor() -> None:
    assert RayJob().diagnosis().verdict.victims == (0, 1, 2)


def test_threads_of_ray_s_own_do_not_count_as_work() -> None:
    job = RayJob()
    ticks = Thread(961, "worker.io", "S", last_ran_ns=FIRST_NS + int(BETWEEN_S * SECOND))
    job.rollout.threads = [(PythonThread(961, "", ()), ticks)]
    job.rollout.still_s = job.driver.still_s = 45.0
    said = job.diagnosis().verdict
    assert said.state == "stuck"


def test_a_rank_s_own_wait_is_said_and_not_how_often_ray_wakes_it() -> None:
    job = RayJob()
    job.build.recorded = False
    job.rollout.still_s = job.driver.still_s = 20.0
    said = job.diagnosis().verdict
    assert said.state == "slow"
    assert "waiting for 20 s" in said.summary
