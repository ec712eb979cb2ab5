"""OpenRLHF's controller and the actors that work for it, each as a process of its own would be."""

from __future__ import annotations

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


def run_controller(folder: Path, *, resume: int = 0, save: str = "float('inf')") -> Trace:
    program = SYNC.replace("RESUME", str(resume)).replace("SAVE", save)
    result = run_job(folder, program, modules=MODULES)
    assert (result.stdout, result.stderr) == (f"{resume + 3}\n", "")
    return recorded(folder)


def test_the_controller_carries_steps_with_phases(tmp_path: Path) -> None:
    trace = run_controller(tmp_path)
    assert [p.role for p in trace.processes] == ["driver"]
    assert step_numbers(trace) == [1, 2, 3]
    names = [name for name in span_names(trace) if name != "step"]
    assert names == [*STEP, *STEP, "eval", *STEP, *STEP[:3]]


def test_settings_come_under_the_names_of_the_command_line(tmp_path: Path) -> None:
    trace = run_controller(tmp_path)
    run = trace.run
    assert (run.framework, run.world_size) == ("openrlhf", 2)
    assert run.config["rollout.n_samples_per_prompt"] == 4
    assert run.knobs["rollout.num_generations"] == 4
    assert "eval.steps" not in run.config
    assert "a_secret_key" not in (tmp_path / "run" / "job.json").read_text()


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
