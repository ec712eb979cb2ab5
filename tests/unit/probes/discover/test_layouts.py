"""Process trees of the frameworks, as their sources make them, and of Ray, as /proc shows them."""

from __future__ import annotations

from grpo_doctor_probes.discover import find_jobs
from tests.unit.probes.discover.fakeproc import FakeProc, rank_environment, roles

NCCL = ("pt_nccl_watchdg", "pt_nccl_heartbt")


def test_ms_swift_with_dataloaders_and_a_rollout_server(host: FakeProc) -> None:
    host.add(100, 50, "/usr/bin/python3.11 /opt/venv/bin/swift rlhf --rlhf_type grpo")
    script = "/opt/venv/lib/python3.11/site-packages/swift/cli/rlhf.py"
    host.add(101, 100, f"python -m torch.distributed.run --nproc_per_node 2 {script}")
    for rank in range(2):
        environment = rank_environment(rank, 2)
        host.add(110 + rank, 101, f"python -u {script}", environment, torch=True, threads=NCCL)
        host.add(
            120 + rank, 110 + rank, f"python -u {script}", environment,
            torch=True, name="pt_data_worker", image=110 + rank, group=110 + rank,
        )  # fmt: skip
    host.add(200, 50, "/usr/bin/python3.11 /opt/venv/bin/swift rollout --model m")
    host.add(201, 200, "python -c code --multiprocessing-fork", torch=True)
    host.add(202, 201, "VLLM::EngineCore", torch=True)
    host.add(203, 202, "VLLM::Worker_TP0", torch=True, threads=NCCL)
    host.add(204, 202, "VLLM::Worker_TP1", torch=True, threads=NCCL)
    host.listens(200, 8000)
    host.connects(110, 200, 8000)

    (job,) = find_jobs((), host.root)

    assert roles(job) == {
        "launcher": {100: None, 101: None},
        "rank": {110: 0, 111: 1},
        "dataloader": {120: 0, 121: 1},
        "server": {200: None},
        "engine": {201: None, 202: None},
        "engine-worker": {203: None, 204: None},
    }
    assert (job.framework, job.world_size, job.local_ranks) == ("ms-swift", 2, 2)
    for pid in (100, 120, 204):
        assert find_jobs([pid], host.root) == (job,)


def test_a_process_without_a_world_is_no_rank_of_what_its_launcher_was_given(
    host: FakeProc,
) -> None:
    host.add(100, 50, "python /opt/venv/bin/accelerate launch --cpu --num_processes 2 t.py")
    host.add(110, 100, "python t.py", torch=True)
    (job,) = find_jobs([], host.root)
    assert (len(job.ranks()), job.world_size, job.ranks_missing) == (1, None, ())


def test_trl_under_accelerate_with_a_colocated_engine(host: FakeProc) -> None:
    command = "/usr/bin/python3.11 /opt/venv/bin/accelerate launch --num_processes 2 train_grpo.py"
    host.add(100, 50, command)
    for rank in range(2):
        environment = rank_environment(rank, 2)
        host.add(110 + rank, 100, "python -u train_grpo.py", environment, torch=True, threads=NCCL)
    host.add(130, 110, "VLLM::EngineCore", rank_environment(0, 2), torch=True, threads=NCCL)
    host.add(131, 110, "wandb-core --port 1", rank_environment(0, 2), program="/opt/wandb-core")
    (job,) = find_jobs([131], host.root)
    assert (roles(job)["engine"], roles(job)["helper"]) == ({130: 0}, {131: 0})
    assert (job.world_size, [m.rank for m in job.ranks()]) == (2, [0, 1])


def test_verl_tells_the_policy_from_other_actors(host: FakeProc) -> None:
    session = "/tmp/ray/session_2026-11-21_16-00-00_1_2"
    host.add(100, 50, "python -m verl.trainer.main_ppo trainer.n_gpus_per_node=2", torch=True)
    host.add(
        101, 100, f"/ray/gcs_server --log_dir={session}/logs",
        name="gcs_server", program="/ray/gcs_server",
    )  # fmt: skip
    host.add(102, 100, f"/ray/raylet --session-dir={session}", name="raylet", program="/ray/raylet")
    host.add(103, 102, "ray::TaskRunnerV1.run", {"RAY_JOB_ID": "01"})
    for rank in range(2):
        environment = rank_environment(rank, 2, 41000, RAY_JOB_ID="01")
        title = "ray::WorkerDict.actor_rollout_update_actor"
        host.add(110 + rank, 102, title, environment, torch=True, threads=NCCL)
    host.add(120, 102, "ray::vLLMHttpServer", {"RAY_JOB_ID": "01"}, torch=True)
    host.add(121, 120, "VLLM::EngineCore", {"RAY_JOB_ID": "01"}, torch=True)
    host.add(122, 121, "VLLM::Worker_TP0", {"RAY_JOB_ID": "01"}, torch=True, threads=NCCL)
    host.add(130, 102, "ray::RewardLoopWorker", {"RAY_JOB_ID": "01"})
    host.add(131, 102, "ray::AgentLoopWorkerTQ", {"RAY_JOB_ID": "01"}, torch=True)
    host.add(132, 102, "ray::IDLE", {"RAY_JOB_ID": "01"})
    (job,) = find_jobs((), host.root)
    assert roles(job) == {
        "ray": dict.fromkeys((100, 101, 102, 103, 131, 132)),
        "rank": {110: 0, 111: 1},
        "server": {120: None},
        "engine": {121: None},
        "engine-worker": {122: None},
        "reward": {130: None},
    }
    assert (job.framework, job.world_size, job.address) == ("verl", 2, "127.0.0.1:41000")


def test_openrlhf_has_several_groups_that_count_from_zero(host: FakeProc) -> None:
    host.add(100, 50, "python -m openrlhf.cli.train_ppo_ray --x 1", torch=True)
    host.add(102, 100, "/ray/raylet", name="raylet", program="/ray/raylet")
    for rank in range(4):
        policy, reference = rank_environment(rank, 4, 41000), rank_environment(rank, 4, 42000)
        host.add(120 + rank, 102, "ray::ReferenceModelActor", reference, torch=True, threads=NCCL)
        host.add(110 + rank, 102, "ray::PolicyModelActor.fit", policy, torch=True, threads=NCCL)
    host.add(130, 102, "ray::RolloutRayActor.generate", torch=True)
    host.add(131, 130, "VLLM::EngineCore", torch=True)
    (job,) = find_jobs((), host.root)
    assert roles(job)["rank"] == {110: 0, 111: 1, 112: 2, 113: 3}
    assert roles(job)["ray"][120] is None
    assert 130 in roles(job)["engine"]
    assert job.framework == "openrlhf"


def test_the_bundled_trainer_with_its_server_and_reward_workers(host: FakeProc) -> None:
    host.add(100, 50, "python -m torch.distributed.run --nproc-per-node=1 -m grpo_doctor_trainer")
    host.add(
        110, 100, "python -u -m grpo_doctor_trainer --model m", rank_environment(0, 1), torch=True
    )
    code = "from grpo_doctor_trainer.rewards.worker import main; main()"
    host.add(120, 110, ["python", "-c", code, "[]"], rank_environment(0, 1))
    host.add(200, 50, "vllm serve m", torch=True)
    host.add(201, 200, "VLLM::EngineCore", torch=True)
    host.listens(200, 8000)
    host.connects(110, 200, 8000)
    (job,) = find_jobs([201], host.root)
    assert roles(job) == {
        "launcher": {100: None},
        "rank": {110: 0},
        "reward": {120: 0},
        "server": {200: None},
        "engine": {201: None},
    }
    assert job.framework == "bundled"


def test_a_process_that_trains_alone(host: FakeProc) -> None:
    host.add(100, 50, "python -m grpo_doctor_trainer --model m", torch=True)
    host.add(200, 50, "python train.py", torch=True)
    (job,) = find_jobs((), host.root)
    assert roles(job) == {"rank": {100: 0}}
    (job,) = find_jobs([200], host.root)
    assert roles(job) == {"rank": {200: 0}}


def test_a_launcher_that_waits_for_the_other_host(host: FakeProc) -> None:
    host.add(80, 50, "python -m deepspeed.launcher.runner --hostfile others train.py")
    host.add(100, 50, "/usr/bin/python3.11 /opt/venv/bin/accelerate launch train.py")
    host.add(101, 100, "python -m torch.distributed.run --nnodes 2 --nproc_per_node 2 train.py")
    (job,) = find_jobs((), host.root)
    assert roles(job) == {"launcher": {100: None, 101: None}}
    assert (job.world_size, job.ranks_missing) == (4, (0, 1, 2, 3))
    host.add(200, 50, "python train.py", rank_environment(0, 1), torch=True)
    (job,) = find_jobs((), host.root)
    assert roles(job) == {"rank": {200: 0}}


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


def actors(host: FakeProc, first: int, ray_jobs: tuple[str, ...]) -> None:
    """Policy actors which say their rank and the job that they were started for."""
    for rank, job in enumerate(ray_jobs):
        environment = rank_environment(rank, len(ray_jobs), 41000, RAY_JOB_ID=job)
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
    assert 90 in roles(job)["ray"]
    assert find_jobs([90], host.root) == (job,)
