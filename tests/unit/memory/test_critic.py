"""PPO's critic: its bytes as verl logs them, and which of its settings move which phases."""

from __future__ import annotations

import pytest

from grpo_doctor.launches import read
from grpo_doctor.memory import GIB, Ledger, Machine, estimate, model_shape, setup_of

MACHINE = Machine(80 * GIB, 8, host_bytes=2000 * GIB)
VERL = (
    "python -m verl.trainer.main_ppo algorithm.adv_estimator=gae data.train_batch_size=256 "
    "actor_rollout_ref.model.path={model} critic.model.path={model} trainer.n_gpus_per_node={gpus} "
    "actor_rollout_ref.rollout.name=vllm actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2 data.max_prompt_length=1024 "
    "critic.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.rollout.tensor_model_parallel_size=1 "
)
OPENRLHF = (
    "python -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B --remote_rm_url http://x "
    "--advantage_estimator gae --zero_stage 3 --micro_train_batch_size 1 --critic_num_nodes 1 "
    "--critic_num_gpus_per_node 4 "
)


def verl(more: str = "", model: str = "Qwen/Qwen2.5-7B", gpus: int = 8) -> Ledger:
    return estimate(read([VERL.format(model=model, gpus=gpus) + more]), MACHINE)


def phases(ledger: Ledger) -> dict[str, int]:
    assert ledger.host is not None
    return {phase.name: phase.bytes for phase in (*ledger.train.phases, *ledger.host.phases)}


@pytest.mark.parametrize(
    ("model", "gpus", "logged_gib"),
    [
        # "After critic FSDP, memory allocated (GB)" in eric-haibin-lin/verl-data, gsm8k:
        ("Qwen/Qwen2.5-0.5B-Instruct", 1, 1.8410954475402832),
        ("google/gemma-2-2b-it", 2, 4.871518135070801),
    ],
)
def test_weights_are_those_of_verls_log(model: str, gpus: int, logged_gib: float) -> None:
    rollout = next(p for p in verl("", model, gpus).train.phases if p.name == "rollout")
    weights = next(e for e in rollout.components if e.name == "critic's trained weights")
    assert weights.bytes / GIB == pytest.approx(logged_gib, rel=0.001)


def test_a_value_stands_where_logits_were() -> None:
    shape = model_shape("Qwen/Qwen2.5-7B")
    critic = setup_of(read([VERL.format(model=shape.name, gpus=8)]), MACHINE).trainer.critic  # type: ignore[union-attr]
    assert critic is not None
    assert critic.model.parameters == shape.parameters - shape.embedding_parameters
    entries = [e.name for p in verl().train.phases if p.name == "critic" for e in p.components]
    assert not [name for name in entries if "logits" in name]


@pytest.mark.parametrize(("version", "size"), [("0.8.0", 2), ("0.9.1", 4)])
def test_of_policy_and_critic_the_first_sets_megatrons_groups(version: str, size: int) -> None:
    more = "--config-name=ppo_megatron_trainer"
    for model, own in (("actor_rollout_ref.actor", 2), ("critic", 4)):
        more += f" {model}.megatron.tensor_model_parallel_size={own}"
    command = VERL.format(model="Qwen/Qwen2.5-7B", gpus=8) + more
    setup = setup_of(read([command], versions={"verl": version}), MACHINE).trainer
    assert setup is not None
    assert setup.critic is not None
    assert (setup.tensor_parallel, setup.critic.tensor_parallel) == (size, size)


REST = "rollout logprob train optimizer sync checkpoint"


@pytest.mark.parametrize(
    ("more", "up", "down"),
    [
        ("critic.ppo_micro_batch_size_per_gpu=8", "critic", ""),
        ("critic.model.enable_gradient_checkpointing=False", "critic", ""),
        ("critic.use_dynamic_bsz=True", "critic", ""),
        ("critic.model.path=Qwen/Qwen2.5-3B", "", f"init critic {REST}"),
        ("critic.fsdp.param_offload=True", "host", f"init {REST}"),
        ("critic.fsdp.optimizer_offload=True", "host", f"init {REST}"),
        ("critic.fsdp.model_dtype=bfloat16", "", f"init critic {REST}"),
        ("actor_rollout_ref.actor.fsdp_config.optimizer_offload=True", "host",
         "rollout sync critic"),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4", "train", ""),
        ("algorithm.use_kl_in_reward=True", f"init critic {REST}", ""),
    ],
)  # fmt: skip
def test_settings_of_the_critic_move_its_phases(more: str, up: str, down: str) -> None:
    usual, changed = phases(verl()), phases(verl(more))
    assert {name for name in usual if changed[name] > usual[name]} == set(up.split())
    assert {name for name in usual if changed[name] < usual[name]} == set(down.split())


def test_the_older_name_counts_rows_of_all_ranks() -> None:
    older = VERL.replace("critic.ppo_micro_batch_size_per_gpu=4", "critic.ppo_micro_batch_size=32")
    command = older.format(model="Qwen/Qwen2.5-7B", gpus=8)
    assert phases(estimate(read([command]), MACHINE)) == phases(verl())


def test_openrlhf_puts_it_on_gpus_of_its_own_or_beside_the_policy() -> None:
    apart = estimate(read([OPENRLHF]), MACHINE)
    assert [pool.role for pool in apart.pools] == ["train", "critic"]
    weights = next(e for e in apart.pools[1].phases[0].components if "trained weights" in e.name)
    shape = model_shape("Qwen/Qwen2.5-7B")
    assert weights.bytes == pytest.approx(2 * (shape.parameters - shape.embedding_parameters) / 4)
    together = estimate(read([f"{OPENRLHF} --colocate_all_models --vllm_num_engines 8"]), MACHINE)
    assert [pool.role for pool in together.pools] == ["train and rollout"]
    critic = next(phase for phase in together.train.phases if phase.name == "critic")
    contexts = [entry for entry in critic.components if entry.name.endswith("CUDA context")]
    assert len(contexts) == 2  # Ray runs it in a process of its own
