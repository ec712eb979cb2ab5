"""OpenRLHF's controller and the actors that work for it, each as a process of its own would be."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from grpo_doctor.trace.model import Trace
from tests.unit.probes.hooks.hooked_job import recorded, run_job, span_names, step_numbers
from tests.unit.probes.hooks.openrlhf_stand_in import MODULES

ARGUMENTS = """
from argparse import Namespace
args = Namespace(
    resume=RESUME,
    actor=Namespace(num_nodes=1, num_gpus_per_node=2, lr=1e-6),
    rollout=Namespace(n_samples_per_prompt=4, batch_size=8),
    ckpt=Namespace(save_steps=SAVE),
    logger=Namespace(wandb=Namespace(key="a_secret_key")),
    eval=Namespace(steps=float("inf"), dataset=None),
)
"""
SYNC = (
    ARGUMENTS
    + """
from openrlhf.trainer.ppo_trainer import PPOTrainer
from ray._private.function_manager import loaded
print(loaded(PPOTrainer)(args).fit())
"""
)
STEP = ["rollout", "offload", "dataload", "train", "logprob", "train/update", "sync"]


SLEEP_NS = 50_000_000


def run_controller(folder: Path, *, resume: int = 0, save: str = "float('inf')") -> Trace:
    program = SYNC.replace("RESUME", str(resume)).replace("SAVE", save)
    result = run_job(folder, program, modules=MODULES)
    assert (result.stdout, result.stderr) == (f"{resume + 3}\n", "")
    return recorded(folder)


def metrics_of(folder: Path) -> list[tuple[int, dict[str, float]]]:
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [(row["step"], row["metrics"]) for row in map(json.loads, lines)]


def test_the_controller_carries_steps_with_phases(tmp_path: Path) -> None:
    trace = run_controller(tmp_path)
    assert [p.role for p in trace.processes] == ["driver"]
    assert step_numbers(trace) == [1, 2, 3]
    names = [name for name in span_names(trace) if name != "step"]
    assert names == [*STEP, *STEP, "eval", *STEP, *STEP[:3]]


def test_metrics_of_the_logger_and_of_an_evaluation_belong_to_their_step(tmp_path: Path) -> None:
    run_controller(tmp_path)
    logged = {"policy_loss": 0.5, "timing/ppo_train": 0.1}
    assert metrics_of(tmp_path) == [
        (1, logged), (2, logged), (2, {"eval_pass1": 0.25}), (3, logged),
    ]  # fmt: skip


def test_settings_come_under_the_names_of_the_command_line(tmp_path: Path) -> None:
    trace = run_controller(tmp_path)
    run = trace.run
    assert (run.framework, run.world_size) == ("openrlhf", 2)
    assert run.config["rollout.n_samples_per_prompt"] == 4
    assert run.knobs["rollout.num_generations"] == 4
    assert "eval.steps" not in run.config
    assert "a_secret_key" not in (tmp_path / "run" / "job.json").read_text()


def test_the_asynchronous_trainer_waits_for_samples_within_its_steps(tmp_path: Path) -> None:
    program = (
        ARGUMENTS.replace("RESUME", "0").replace("SAVE", "1000")
        + """
from queue import Queue
from openrlhf.trainer.ppo_trainer_async import TrainingActor
from ray._private.function_manager import loaded
queue = Queue()
for payload in (["a"], ["b"], "done"):
    queue.put(payload)
print(loaded(TrainingActor)(args, queue).fit())
"""
    )
    result = run_job(tmp_path, program, modules=MODULES)
    assert (result.stdout, result.stderr) == ("2\n", "")
    trace = recorded(tmp_path)
    assert [p.role for p in trace.processes] == ["driver"]
    assert step_numbers(trace) == [1, 2]  # what it waits for at the end is no step
    one_step = ["rollout/wait", "train", "logprob", "train/update", "sync"]
    assert [n for n in span_names(trace) if n != "step"] == [*one_step, *one_step, "rollout/wait"]


def test_the_actors_of_the_models_have_roles_and_phases(tmp_path: Path) -> None:
    program = """
from openrlhf.trainer.ray.ACTOR import CLASS
from ray._private.function_manager import loaded
actor = loaded(CLASS)()
actor._setup_distributed(None)
print(actor.forward([1]))
"""
    train = "actor.reload_states(); print(actor.fit()); actor.save_model()"
    policy = program.replace("ACTOR", "ppo_actor").replace("CLASS", "PolicyModelActor") + train
    reference = program.replace("ACTOR", "launcher").replace("CLASS", "ReferenceModelActor")
    folders = [tmp_path / "policy", tmp_path / "reference"]
    outputs = []
    for folder, text in zip(folders, (policy, reference), strict=True):
        folder.mkdir()
        result = run_job(
            folder, text, modules=MODULES, environment={"RANK": "1", "WORLD_SIZE": "2"}
        )
        outputs.append((result.stdout, result.stderr))
    assert outputs == [("[1]\n[0, 1]\n", ""), ("[1]\n", "")]
    traces = [recorded(folder) for folder in folders]
    assert span_names(traces[0]) == [
        "logprob/old", "offload", "train", "train/micro_batch", "train/micro_batch", "checkpoint",
    ]  # fmt: skip
    assert span_names(traces[1]) == ["logprob/reference"]
    assert (folders[0] / "run" / "ranks" / "actor-00001.json").exists()
    assert (folders[1] / "run" / "ranks" / "reference-00001.json").exists()


ROLLOUT = """
import asyncio, inspect, time
from openrlhf.trainer.ray.vllm_engine import RolloutRayActor
from openrlhf.utils.agent import MultiTurnAgentExecutor, SingleTurnAgentExecutor
from ray._private.function_manager import loaded

def length_reward(text):
    time.sleep(SLEEP_S)
    return len(text)

class Environment:
    async def step(self, states):
        return "fed back"

async def roll_out(executor):
    actor = loaded(RolloutRayActor)
    engine = actor.__new__(actor)
    await engine.__init__(executor)
    return await engine.generate_responses(["a", "bb", "ccc"])
""".replace("SLEEP_S", str(SLEEP_NS / 1e9))


def test_rewards_have_names_where_engines_call_them_and_overlap(tmp_path: Path) -> None:
    program = (
        ROLLOUT
        + """
print(asyncio.run(roll_out(SingleTurnAgentExecutor(length_reward))))
print(inspect.iscoroutinefunction(SingleTurnAgentExecutor._fetch_rewards_via_func))
"""
    )
    result = run_job(tmp_path, program, modules=MODULES)
    assert (result.stdout, result.stderr) == ("[1, 2, 3]\nTrue\n", "")
    trace = recorded(tmp_path)
    assert [p.role for p in trace.processes] == ["rollout"]
    names = Counter(span_names(trace))
    assert names == {"rollout/generate": 1, "reward": 1, "reward/length_reward": 3}
    spans = trace.spans
    reward = spans.name == trace.names.index("reward/length_reward")
    lengths = spans.end_ns[reward] - spans.start_ns[reward]
    assert all(length >= SLEEP_NS for length in lengths)
