"""OpenRLHF's groups need more GPUs than there are.

Actor, reference, critic, reward model and each vLLM engine take GPUs of their own, unless they are
colocated. Ray waits for GPUs that are missing and says nothing: the job never starts. A reward
model has a group with 8 GPUs by default, unless rewards come from a URL, a file or an agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grpo_doctor.launches.domain import kind_of
from grpo_doctor.launches.rule import OPENRLHF, Flaw, View

DOMAIN = replace(OPENRLHF, whole=True)


def check(view: View) -> Flaw | None:
    """The sum of all groups against the GPUs of all hosts."""
    cards, hosts = view.host.cards_per_node, view.host.nodes
    if (
        cards is None
        or view.launch.subcommand != "train_ppo_ray"
        or not view.launch.processes_known
    ):
        return None
    if hosts is None and view.launch.nodes > 1:
        return None  # groups may be on different hosts
    groups = [(name, count) for name, count in _groups(view) if count]
    needed, there = sum(count for _, count in groups), cards * (hosts or 1)
    if needed <= there:
        return None
    colocate = view.flag("vllm.mode", "colocate")
    open_ = view.launch.submitted and hosts is None
    return Flaw(
        severity="medium" if open_ else "high",
        ends=not open_,
        unverified=open_,
        headline=f"OpenRLHF needs {needed} GPUs of {there}",
        evidence=(
            ", ".join(f"{count} for {name}" for name, count in groups),
            "Ray waits for the missing GPUs and does not say so",
        ),
        fixes=(f"{colocate} shares the GPUs", "or pass --nodes N if there are more hosts"),
        source=view.source("vllm.data_parallel_size", "run.gpus_per_node"),
    )


def _groups(view: View) -> Iterator[tuple[str, int]]:
    together = _is_on(view, "colocate_all_models", "train.colocate_all")
    engines = view.launch.settings.get("vllm.data_parallel_size") or 0
    critic = kind_of(view.launch) == "ppo"
    yield "the actor", view.launch.processes
    if not together or view.value("rollout.async"):
        yield "vLLM", engines * view.degree("vllm.tensor_parallel_size")
    if view.value("train.beta") and not (
        together or _is_on(view, "colocate_actor_ref", "train.colocate_actor_ref")
    ):
        yield "the reference model", _size(view, "ref")
    apart = critic and _is_on(view, "colocate_critic_reward", "train.colocate_critic_reward")
    if critic and (apart or not together):
        yield "the critic", _size(view, "critic")
    remote = ("remote_rm_url", "reward.remote_url", "agent_func_path", "train.agent_func_path")
    if not together and not apart and not any(name in view.launch.options for name in remote):
        yield "the reward model", _size(view, "reward")


def _size(view: View, group: str) -> int:
    """GPUs of a group; 0 where what the launch says is no number."""
    product = 1
    options = view.launch.options
    for name, default in (("num_nodes", 1), ("num_gpus_per_node", 8)):
        text = options.get(f"{group}_{name}", options.get(f"{group}.{name}"))
        product *= int(str(text)) if str(text).isdigit() else default if text is None else 0
    return product


def _is_on(view: View, *names: str) -> bool:
    return any(str(view.launch.options.get(name, False)).lower() == "true" for name in names)
