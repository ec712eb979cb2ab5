"""Jobs in Ray, as /proc showed those of ray 2.60: which processes are one job, who drives it."""

from __future__ import annotations

from grpo_doctor_probes.discover import find_jobs
from tests.unit.probes.discover.fakeproc import FakeProc, rank_environment

GLOO = ("pt_gloo_runloop", "gloo_tcp_loop")
CORE = ("worker.io", "grpc_global_tim")
SESSION = "/tmp/ray/session_2026-11-21_23-59-51_862474_2"
GCS_PORT = 6379


def cluster(host: FakeProc) -> None:
    """As `ray start --head` leaves it: daemons of no driver."""
    host.add(
        100, 1, f"/ray/gcs_server --log_dir={SESSION}/logs", name="gcs_server",
        program="/ray/gcs_server",
    )  # fmt: skip
    host.listens(100, GCS_PORT)
    host.add(101, 1, f"/ray/raylet --session-dir={SESSION}", name="raylet", program="/ray/raylet")


def actors(host: FakeProc, first: int, ray_jobs: tuple[str, ...], port: int = 41000) -> None:
    """Policy actors which say their rank and the job that they were started for."""
    for rank, job in enumerate(ray_jobs):
        environment = rank_environment(rank, len(ray_jobs), port, RAY_JOB_ID=job)
        title = "ray::PolicyWorker.update_policy"
        host.add(first + rank, 101, title, environment, torch=True, threads=GLOO)


def test_workers_that_ray_started_before_it_knew_the_job_are_of_it(host: FakeProc) -> None:
    cluster(host)
    actors(host, 110, ("ffffffff", "ffffffff", "01000000"))
    (job,) = find_jobs((), host.root)
    assert [member.rank for member in job.ranks()] == [0, 1, 2]
    assert job.world_size == 3


def test_a_driver_that_joined_a_cluster_belongs_to_the_job(host: FakeProc) -> None:
    cluster(host)
    host.add(90, 50, "python train_ray.py", torch=True, threads=CORE)
    host.connects(90, 100, GCS_PORT)
    actors(host, 110, ("01000000", "01000000"))
    (job,) = find_jobs((), host.root)
    driver = job.member(90)
    assert driver is not None
    assert driver.role == "ray"
    assert find_jobs([90], host.root) == (job,)
