"""PPO's critic as a setup of its own: its options are read as if they were the policy's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.launches import Launch
from grpo_doctor.launches.domain import kind_of
from grpo_doctor.memory.cards import Machine
from grpo_doctor.memory.facts import holds_since
from grpo_doctor.memory.launched_batch import count
from grpo_doctor.memory.launched_trainer import trainer_of
from grpo_doctor.memory.models import ModelShape, model_shape
from grpo_doctor.memory.setup import Setup

_ACTOR = "actor_rollout_ref.actor."
_SHARED = (
    f"{_ACTOR}ppo_mini_batch_size",
    f"{_ACTOR}use_dynamic_bsz",
    "actor_rollout_ref.rollout.n",
)
_PARALLEL = re.compile(rf"{_ACTOR}megatron\.\w*parallel_size$")
"""Critic and policy are in one process, and the first of them sets Megatron's groups: the policy in
verl 0.4 to 0.8 (megatron_workers.py), since then the critic (ray_trainer.py: critic_wg.reset())."""
_AS_POLICY = {
    "critic.model.fsdp_config.": f"{_ACTOR}fsdp_config.",
    "critic.fsdp.": f"{_ACTOR}fsdp_config.",  # its name since 0.8
    "critic.model.": "actor_rollout_ref.model.",
    "critic.forward_micro_batch_size": "actor_rollout_ref.rollout.log_prob_micro_batch_size",
    "critic.forward_max_token": "actor_rollout_ref.rollout.log_prob_max_token",
    "critic.": _ACTOR,
}
_TRAINED, _SCORED = "ppo_micro_batch_size", "critic.forward_micro_batch_size"
_OPENRLHF = ("critic_pretrain", "critic.model_name_or_path", "reward_pretrain",
             "reward.model_name_or_path")  # fmt: skip
"""Where OpenRLHF looks for the critic's weights, before it takes the policy's."""


def with_critic(setup: Setup, launch: Launch, machine: Machine, assumptions: list[str]) -> Setup:
    """Return the policy's setup with that of its critic, if the launch trains one."""
    if kind_of(launch) != "ppo":
        return setup
    verl = launch.framework == "verl"
    names = ("critic.model.path",) if verl else _OPENRLHF
    name = next((str(launch.options[n]) for n in names if launch.options.get(n)), None)
    if name is None and verl:
        assumptions.append("a critic like the policy; to change that: critic.model.path=PATH")
    shape = model_shape(name.partition(",")[0]) if name else setup.model
    critic = _verl_s(launch, machine, shape) if verl else setup
    shared = (str(launch.options.get(n)).lower() for n in _COLOCATED)
    apart = not verl and "true" not in shared
    if apart:
        sizes = [_size(launch, f"num_{what}", n) for what, n in _GROUP.items()]
        critic = replace(critic, ranks=sizes[0] * sizes[1], ranks_per_node=sizes[1])
    critic = replace(
        critic,
        model=replace(shape, head=False),
        loss="none",
        whole_row_logits=False,
        reference=False,
        rollout="none",
    )
    if setup.engine == "megatron" and holds_since(launch.version, "0.9"):
        groups = {name: getattr(critic, name) for name in _DIVIDED}
        setup = replace(setup, **groups)
    return replace(setup, critic=critic, critic_apart=apart)


_DIVIDED = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
_GROUP = {"nodes": 1, "gpus_per_node": 8}
_COLOCATED = ("colocate_all_models", "train.colocate_all")


def _size(launch: Launch, name: str, otherwise: int) -> int:
    said = (count(launch, f"critic{mark}{name}") for mark in "_.")
    return next((size for size in said if size is not None), otherwise)


def _verl_s(launch: Launch, machine: Machine, shape: ModelShape) -> Setup:
    options = _as_policy(launch.options, launch.version)
    own = knobs.canonical(launch.table, launch.version, options)
    settings = {**own, **{k: v for k, v in launch.settings.items() if k.startswith(_PLACES)}}
    if launch.table != launch.framework:
        settings["parallel.strategy"] = "megatron"
    critic = replace(launch, settings=settings, options=options, open={})
    setup = trainer_of(critic, machine, [], shape)
    return replace(
        setup,
        offload_weights=bool(critic.value("offload.model")),
        offload_optimizer=bool(critic.value("offload.optimizer")),
    )


_PLACES = ("run.", "data.", "rollout.")


def _as_policy(options: Mapping[str, Any], version: str | None) -> dict[str, Any]:
    """Return verl's options for the critic under the policy's names, with the critic's defaults."""
    named = dict(options)
    for tail in ("", "_per_gpu"):
        if f"critic.{_TRAINED}{tail}" in named:
            named.setdefault(f"{_SCORED}{tail}", named[f"critic.{_TRAINED}{tail}"])
    budget = named.setdefault("critic.ppo_max_token_len_per_gpu", "32768")
    named.setdefault("critic.forward_max_token_len_per_gpu", budget)
    named.setdefault("critic.model.use_remove_padding", str(holds_since(version, "0.8")))
    own_groups = holds_since(version, "0.9")
    groups = () if own_groups else tuple(filter(_PARALLEL.match, named))
    renamed = {name: named[name] for name in (*_SHARED, *groups) if name in named}
    for name, value in named.items():
        if name.startswith("critic."):
            start = next(prefix for prefix in _AS_POLICY if name.startswith(prefix))
            to = _AS_POLICY[start] + name.removeprefix(start)
            if own_groups or not _PARALLEL.match(to):
                renamed[to] = value
        elif not name.startswith("actor_rollout_ref."):
            renamed[name] = value
    return renamed
