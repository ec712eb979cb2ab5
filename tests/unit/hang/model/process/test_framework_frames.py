"""What real stacks of the frameworks mean: frames as py-spy showed them of jobs on torch 2.13."""

from __future__ import annotations

from grpo_doctor.hang.model.process.stacks import Place, place_of
from grpo_doctor_probes.evidence import PythonThread
from tests.evidence import frames

SITE = "/opt/venv/lib/python3.11/site-packages"
SWIFT = (  # ms-swift 4.6
    f"GRPOTrainer._compute_rewards_per_func {SITE}/swift/rlhf_trainers/grpo_trainer.py:357",
    f"GRPOTrainer._score_completions {SITE}/swift/rlhf_trainers/grpo_trainer.py:225",
    f"_generate_and_score_completions {SITE}/swift/rlhf_trainers/rollout_mixin.py:142",
    f"GRPOTrainer._prepare_inputs {SITE}/swift/rlhf_trainers/grpo_trainer.py:202",
    f"Trainer.training_step {SITE}/transformers/trainer.py:2059",
    f"SwiftPipeline.main {SITE}/swift/pipelines/base.py:52",
    f"<module> {SITE}/swift/cli/rlhf.py:7",
)
TRL = (  # TRL 1.16
    f"GRPOTrainer._calculate_rewards {SITE}/trl/trainer/grpo_trainer.py:1626",
    f"GRPOTrainer._generate_and_score_completions {SITE}/trl/trainer/grpo_trainer.py:2753",
    f"GRPOTrainer._prepare_inputs {SITE}/trl/trainer/grpo_trainer.py:1801",
    f"Trainer.training_step {SITE}/transformers/trainer.py:2059",
)


def place(*lines: str) -> Place:
    return place_of(PythonThread(1, "MainThread", frames(*lines)))


def test_a_reward_of_trl() -> None:
    status = place("length_reward /home/me/train_grpo.py:33", *TRL, "<module> /home/me/train.py:88")
    assert (status.phase, status.long_work) == ("reward", None)
    assert status.user is not None
    assert status.user.line == 33


def test_a_reward_plugin_of_ms_swift() -> None:
    plugin = ("check /home/me/plugin.py:10", "LengthReward.__call__ /home/me/plugin.py:21")
    status = place(*plugin, f"score_completions {SITE}/swift/rl_core/grpo_algorithm.py:120", *SWIFT)
    assert (status.phase, status.long_work) == ("reward", None)
    assert status.user is not None
    assert status.user.line == 10


def test_an_own_reward_of_ms_swift_has_no_line_of_the_users() -> None:
    status = place(f"MathAccuracy.__call__ {SITE}/swift/rewards/orm.py:120", *SWIFT)
    assert (status.phase, status.user) == ("reward", None)


def test_gradient_checkpointing_is_no_compilation() -> None:
    status = place(
        "forward /home/me/model.py:31",
        f"checkpoint {SITE}/torch/utils/checkpoint.py:519",
        f"_fn {SITE}/torch/_dynamo/eval_frame.py:1446",
        f"inner {SITE}/torch/_compile.py:54",
        f"training_step {SITE}/transformers/trainer.py:4020",
    )
    assert (status.phase, status.long_work) == ("train", None)


def test_compilation_is_long_work() -> None:
    status = place(
        f"compile_fx {SITE}/torch/_inductor/compile_fx.py:900",
        f"_compile {SITE}/torch/_dynamo/convert_frame.py:1200",
        f"_fn {SITE}/torch/_dynamo/eval_frame.py:1446",
        "forward /home/me/model.py:31",
    )
    assert status.long_work == "compile"


def test_verls_update_is_training() -> None:
    status = place(
        f"DataParallelPPOActor.update_policy {SITE}/verl/workers/actor/dp_actor.py:500",
        f"ActorRolloutRefWorker.update_actor {SITE}/verl/workers/fsdp_workers.py:700",
    )
    assert status.phase == "train"
