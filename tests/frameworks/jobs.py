"""Starts and ends real jobs of the four frameworks, each on two ranks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

CODE = Path(__file__).with_name("user_code")
RANKS = 2
START_S = 900.0
# How often a step calls the reward: verl for each of 16 completions, ms-swift and TRL in each rank.
CALLS = {"verl": 16, "openrlhf": 16, "swift": RANKS, "trl": RANKS}
_BOTH = {
    "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline",
    "RAY_DEDUP_LOGS": "0",
    # A node may take minutes to start where many share two cores.
    "RAY_raylet_start_wait_time_s": "400", "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "PYTHONUNBUFFERED": "1",
}  # fmt: skip


_TEE = "rm -f job.pipe; mkfifo job.pipe; tee job.log <job.pipe >/dev/null 2>&1 & echo $!"


@dataclass(frozen=True)
class Setting:
    """`options` are added to the command of the framework, `environment` to its own.

    A `piped` job writes into a pipe that `tee` reads, as with `| tee job.log`.
    """

    framework: str
    python: Path
    model: Path
    data: Path
    folder: Path
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    piped: bool = False


@dataclass(frozen=True)
class Job:
    """A running job: the process that was started, its log and its orders."""

    setting: Setting
    pid: int
    reader: int = 0  # the PID of `tee`; 0 without one

    @property
    def ended(self) -> bool:
        """Whether the process that was started is no more."""
        try:
            return bool(psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    @property
    def log(self) -> Path:
        return self.setting.folder / "job.log"

    def steps(self) -> int:
        """How many steps have come to their rewards."""
        path = self.setting.folder / "scored"
        return path.stat().st_size // CALLS[self.setting.framework] if path.exists() else 0

    def wait_for_steps(self, count: int, at_most_s: float = START_S) -> bool:
        """Until so many steps are done; whether they were, before the job ended or time was up."""
        until = time.monotonic() + at_most_s
        while self.steps() < count:
            if self.ended or time.monotonic() > until:
                return False
            time.sleep(0.3)
        return True

    def order(self, **order: Any) -> None:
        """Makes a fault due from the next call on."""
        path = self.setting.folder / "orders.json"
        path.with_suffix(".new").write_text(json.dumps(order))
        path.with_suffix(".new").rename(path)

    def take_back(self) -> None:
        """No fault is due from now on; what has begun goes on."""
        (self.setting.folder / "orders.json").unlink(missing_ok=True)
        for mark in self.setting.folder.glob("obeys-*"):
            mark.unlink()

    def obeying(self, act: str) -> list[int]:
        """The processes that have come to the fault."""
        return [int(p.name.rpartition("-")[2]) for p in self.setting.folder.glob(f"obeys-{act}-*")]

    def wait_for_obedience(self, act: str, at_most_s: float = 120.0) -> bool:
        until = time.monotonic() + at_most_s
        while not self.obeying(act):
            if self.ended or time.monotonic() > until:
                return False
            time.sleep(0.1)
        return True

    def family(self) -> list[psutil.Process]:
        """All its processes, those of Ray's daemons included."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return list(psutil.Process(self.pid).children(recursive=True))
        return []

    def matching(self, pattern: str) -> list[psutil.Process]:
        """Those whose title or command matches, lowest PID first."""
        processes = []
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                if re.search(pattern, " ".join(process.cmdline()) or process.name()):
                    processes.append(process)
        return sorted(processes, key=lambda process: process.pid)


def command(setting: Setting) -> tuple[list[str], dict[str, str]]:
    """What starts the job, and its variables."""
    build = {"verl": _verl, "openrlhf": _openrlhf, "swift": _swift, "trl": _trl}
    words, variables = build[setting.framework](setting)
    orders = {"ORDERS": str(setting.folder / "orders.json")}
    environment = {**os.environ, **_BOTH, **variables, **orders, **setting.environment}
    return [*words, *setting.options], environment


def _path(*folders: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(map(str, folders))}


def _verl(setting: Setting) -> tuple[list[str], dict[str, str]]:
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    options = {
        "algorithm.adv_estimator": "grpo",
        "data.train_files": setting.data / "train.parquet",
        "data.val_files": setting.data / "val.parquet",
        "data.train_batch_size": 4, "data.max_prompt_length": 64, "data.max_response_length": 16,
        "data.dataloader_num_workers": 0,
        "actor_rollout_ref.model.path": setting.model,
        "actor_rollout_ref.model.use_remove_padding": False,
        "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        "actor_rollout_ref.model.enable_gradient_checkpointing": False,
        f"{actor}.strategy": "fsdp2", f"{actor}.use_torch_compile": False,
        f"{actor}.ppo_mini_batch_size": 4, f"{actor}.ppo_micro_batch_size_per_gpu": 4,
        f"{actor}.use_kl_loss": False,
        f"{rollout}.name": "transformers_on_cpu", f"{rollout}.n": 4,
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": 4, f"{rollout}.agent.num_workers": 1,
        "reward.num_workers": 1, "reward.custom_reward_function.path": CODE / "reward.py",
        "trainer.device": "cpu", "trainer.n_gpus_per_node": RANKS, "trainer.nnodes": 1,
        "trainer.total_epochs": 1000, "trainer.total_training_steps": 100_000,
        "trainer.logger": "[console]",
        "trainer.val_before_train": False, "trainer.test_freq": -1, "trainer.save_freq": -1,
        "trainer.resume_mode": "disable", "trainer.default_local_dir": setting.folder / "out",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        # More than this machine has: verl wants a core for each of its actors, and GPUs.
        "ray_kwargs.ray_init.num_cpus": 32, "+ray_kwargs.ray_init.num_gpus": RANKS,
        "+ray_kwargs.ray_init.include_dashboard": False,
    }  # fmt: skip
    variables = {"VERL_USE_EXTERNAL_MODULES": "verl_on_cpu", "VERL_PLATFORM": "cpu"}
    words = [str(setting.python), "-m", "verl.trainer.main_ppo"]
    return [*words, *(f"{name}={value}" for name, value in options.items())], {
        **variables, **_path(CODE), "HYDRA_FULL_ERROR": "1",
    }  # fmt: skip


def _openrlhf(setting: Setting) -> tuple[list[str], dict[str, str]]:
    options = {
        "actor.num_nodes": 1, "actor.num_gpus_per_node": RANKS, "ref.num_gpus_per_node": RANKS,
        "vllm.num_engines": 1, "vllm.tensor_parallel_size": 1, "vllm.sync_backend": "gloo",
        "vllm.gpu_memory_utilization": 0.2,
        "actor.model_name_or_path": setting.model, "reward.remote_url": CODE / "reward.py",
        "data.prompt_dataset": setting.data / "openrlhf.jsonl", "data.input_key": "input",
        "data.label_key": "label", "data.max_len": 128, "data.max_samples": 512,
        "rollout.batch_size": 4, "rollout.micro_batch_size": 4,
        "rollout.n_samples_per_prompt": 4, "train.batch_size": 16, "train.micro_batch_size": 4,
        "train.num_episodes": 100, "algo.advantage.estimator": "group_norm",
        "algo.kl.init_coef": 0, "ds.zero_stage": 2, "ds.attn_implementation": "sdpa",
        "ckpt.output_dir": setting.folder / "out",
    }  # fmt: skip
    words = [str(setting.python), "-m", "openrlhf.cli.train_ppo_ray", "--vllm.enforce_eager"]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return words, {
        **_path(CODE, CODE / "openrlhf_site"), "DS_ACCELERATOR": "cpu",
        "PATH": f"{setting.python.parent}{os.pathsep}{os.environ['PATH']}",
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_USE_V1": "1", "VLLM_NO_USAGE_STATS": "1",
        "TORCH_EXTENSIONS_DIR": str(_extensions(setting)),
    }  # fmt: skip


def _extensions(setting: Setting) -> Path:
    """Where DeepSpeed builds, for all jobs; without the locks that a killed job has left."""
    folder = setting.folder.parent / "extensions"
    for lock in folder.glob("*/lock"):
        lock.unlink()
    return folder


def _swift(setting: Setting) -> tuple[list[str], dict[str, str]]:
    options = {
        "rlhf_type": "grpo", "model": setting.model, "model_type": "qwen2",
        "template": "qwen2_5", "reward_funcs": "length",
        "external_plugins": CODE / "swift_plugin.py", "tuner_type": "lora",
        "torch_dtype": "float32", "dataset": setting.data / "swift.jsonl", "use_cpu": "true",
        "per_device_train_batch_size": 4, "num_generations": 4, "max_completion_length": 16,
        "num_train_epochs": 1000, "logging_steps": 1, "save_strategy": "no",
        "eval_strategy": "no", "split_dataset_ratio": 0, "report_to": "none",
        "output_dir": setting.folder / "out", "dataset_num_proc": 1,
        "dataloader_num_workers": 0, "ddp_backend": "gloo",
    }  # fmt: skip
    words = [str(setting.python.with_name("swift")), "rlhf"]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return words, {
        **_path(CODE), "NPROC_PER_NODE": str(RANKS), "DS_ACCELERATOR": "cpu",
        "PATH": f"{setting.python.parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip


def _trl(setting: Setting) -> tuple[list[str], dict[str, str]]:
    words = [str(setting.python.with_name("torchrun")), "--standalone"]
    words += [f"--nproc_per_node={RANKS}", str(CODE / "trl_train.py")]
    return [*words, str(setting.model), str(setting.folder)], _path(CODE)


@contextmanager
def running(setting: Setting) -> Iterator[Job]:
    """A job, which is ended with all that it started."""
    setting.folder.mkdir(parents=True, exist_ok=True)
    (setting.folder / "scored").unlink(missing_ok=True)
    words, variables = command(setting)
    # Through a shell that ends at once: no ancestor of the job, the bench is no part of it.
    # Niced, as it shares its cores with whatever else runs there.
    into = "job.pipe" if setting.piped else "job.log"
    script = f'nice -n 19 "$@" >{into} 2>&1 </dev/null & echo $!'
    if setting.piped:
        script = f"{_TEE}; {script}"
    started = subprocess.run(
        ["setsid", "sh", "-c", script, "sh", *words], cwd=setting.folder, check=True, text=True,
        env=variables, stdout=subprocess.PIPE,
    )  # fmt: skip
    *reader, pid = map(int, started.stdout.split())
    job = Job(setting, pid, *reader)
    try:
        yield job
    finally:
        _end(job)


def _end(job: Job) -> None:
    """Ray's daemons leave the family when their parent ends, so all are noted before."""
    family = job.family()
    for pid in filter(None, (job.pid, job.reader)):
        with contextlib.suppress(psutil.NoSuchProcess):
            family.append(psutil.Process(pid))
    for process in [*family, *job.family()]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=10)
