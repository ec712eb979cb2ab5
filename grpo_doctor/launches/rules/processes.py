"""Processes and GPUs: how many there are, and what shares them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grpo_doctor.launches.domain import kind_of
from grpo_doctor.launches.rule import LIKE_TRL, OPENRLHF, SAMPLES, Flaw, View, fatal_flaw, rule

_WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight"}


@rule("GL001", LIKE_TRL)
def one_process_many_gpus(view: View) -> Flaw | None:
    """One process sees several GPUs.

    A launcher starts one process per GPU. Where one process sees several, DeepSpeed has no
    other rank to shard states with: ZeRO-3 puts the whole model on one GPU. Or ms-swift spreads its
    layers over the GPUs (`device_map`), and only one works at a time; with vLLM or DeepSpeed it
    refuses to start. A smaller batch will not help.
    """
    cards = view.cards
    if cards is None or cards < 2 or (cards == 2 and view.engine_has_own_card):
        return None
    if view.processes != 1:
        return _unsaid(view, cards) if _is_unsaid(view) else None
    stage = view.value("deepspeed.stage")
    strategy = view.value("parallel.strategy")
    sharding = f"ZeRO-{stage}" if stage is not None else strategy
    evidence = [f"{cards} GPUs are visible, and {_started(view)} 1 process"]
    if sharding:
        evidence.append(
            f"{sharding} shards states over processes: with one process it shards nothing"
        )
    else:
        evidence.append("the other GPUs stay idle, or hold layers that wait for each other")
    pointless = bool(sharding) or bool(view.value("vllm.use"))
    return Flaw(
        severity="high" if pointless else "medium",
        headline=f"one process on {_WORDS.get(cards, cards)} GPUs",
        evidence=tuple(evidence),
        fixes=(_fix(view, cards), "or make only one GPU visible: CUDA_VISIBLE_DEVICES=0"),
        source=view.source("deepspeed.preset", "deepspeed.stage"),
        ends=_refuses(view),
        first=pointless,
    )


def _is_unsaid(view: View) -> bool:
    environment = view.launch.environment
    counts_set = "NPROC_PER_NODE" in environment or "NNODES" in environment
    swift = view.launch.framework == "ms-swift"
    return swift and not view.launch.launcher and not counts_set


def _unsaid(view: View, cards: int) -> Flaw:
    refused = _refuses(view)
    evidence = ["with vLLM or DeepSpeed it then refuses to start"] if refused else []
    return Flaw(
        severity="medium",
        headline=f"NPROC_PER_NODE is not set: ms-swift starts one process on {cards} GPUs",
        evidence=(*evidence, "the rest of this check assumes one process per GPU"),
        fixes=(_fix(view, cards),),
        source=view.source("deepspeed.preset", "deepspeed.stage"),
        unverified=refused,
    )


def _refuses(view: View) -> bool:
    """Whether ms-swift ends at startup where one process has several GPUs (`_init_deepspeed`,
    `_check_grpo`)."""
    if view.launch.framework != "ms-swift":
        return False
    shards = {view.value("deepspeed.stage"), view.value("parallel.strategy")} != {None}
    vllm = bool(view.value("vllm.use"))
    return (shards and view.at_least("3.3.0")) or (vllm and view.at_least("3.6.0"))


def _started(view: View) -> str:
    processes = view.launch.environment.get("NPROC_PER_NODE")
    if processes:
        return f"NPROC_PER_NODE={processes} starts"
    return f"{view.launch.launcher} starts" if view.launch.launcher else "the command is"


def _fix(view: View, cards: int) -> str:
    if view.launch.framework == "ms-swift":
        return f"NPROC_PER_NODE={cards} swift {view.launch.subcommand} ..."
    if view.launch.launcher == "accelerate" or view.launch.framework == "trl":
        return f"accelerate launch --num_processes {cards} ..."
    return f"torchrun --nproc_per_node {cards} ..."


@rule("GL002", SAMPLES)
def more_processes_than_gpus(view: View) -> Flaw | None:
    """More processes than GPUs.

    Each training process takes a GPU of its own by its local rank. The processes beyond the last
    GPU end with `invalid device ordinal`, and the others wait for them until their timeout.
    OpenRLHF asks Ray for single GPUs, of any host: GL064 counts them.
    """
    per_node, cards = view.launch.processes_per_node, view.cards
    if cards is None or per_node <= cards or view.launch.framework == "openrlhf":
        return None
    return fatal_flaw(
        headline=f"{per_node} processes on {cards} GPU{'s' * (cards != 1)}",
        evidence=(f"{per_node} processes per host, {cards} visible GPUs per host",),
        fixes=(f"start {cards} processes per host, or make {per_node} GPUs visible",),
        source=view.source("run.gpus_per_node"),
    )


@rule("GL003", SAMPLES)
def idle_gpus(view: View) -> Flaw | None:
    """Fewer processes than GPUs.

    GPUs without a process stay idle for the whole run. If a rollout server uses them, pass it with
    --with, or with CUDA_VISIBLE_DEVICES before each of the two commands. The vLLM of ms-swift
    before 3.5 takes a GPU that no process trains on.
    """
    cards, started = view.cards, view.processes_per_node
    if cards is None or started is None:
        return None
    served = view.launch.server or view.value("vllm.mode") == "server" or view.engine_has_own_card
    if served or not 1 < started < cards:
        return None
    return Flaw(
        severity="low",
        headline=f"{cards - started} of {cards} GPUs have no process",
        evidence=(f"{started} processes per host, {cards} visible GPUs per host",),
        fixes=(f"start {cards} processes per host",),
    )


@rule("GL068", replace(OPENRLHF, frameworks=("verl", "openrlhf")))
def driver_started_several_times(view: View) -> Flaw | None:
    """A driver of Ray is started once per GPU.

    verl's `main_ppo` and OpenRLHF's `train_ppo_ray` are one process that starts the ranks itself,
    with Ray. Under torchrun, accelerate or deepspeed each of several processes starts the whole
    job: they ask for the same GPUs, and wait for each other or run out of memory.
    """
    launch, count = view.launch, view.processes_per_node
    launchers = ("torchrun", "accelerate", "deepspeed")
    if launch.launcher not in launchers or count == 1 or launch.subcommand == "train_ppo":
        return None
    return Flaw(
        severity="high",
        headline=f"{launch.launcher} starts the driver of {launch.framework} "
        + (f"{count} times" if count else "once per GPU"),
        evidence=("one driver starts a rank on each GPU, with Ray", "each asks for all GPUs"),
        fixes=(f"python3 instead of {launch.launcher} and its options",),
        first=True,
    )


@rule("GL064", replace(OPENRLHF, whole=True))
def more_gpus_than_there_are(view: View) -> Flaw | None:
    """OpenRLHF's groups need more GPUs than there are.

    Actor, reference, critic, reward model and each vLLM engine take GPUs of their own, unless they
    are colocated. Ray waits silently for missing GPUs: the job never starts. A reward model has a
    group with 8 GPUs by default, unless rewards come from a URL, a file or an agent.
    """
    cards, hosts, launch = view.host.cards_per_node, view.host.nodes, view.launch
    if cards is None or launch.subcommand != "train_ppo_ray" or not launch.processes_known:
        return None
    if hosts is None and launch.nodes > 1:
        return None  # groups may be on different hosts
    groups = [(name, count) for name, count in _groups(view) if count]
    needed, there = sum(count for _, count in groups), cards * (hosts or 1)
    if needed <= there:
        return None
    colocate = view.flag("vllm.mode", "colocate")
    open_ = launch.submitted and hosts is None
    return Flaw(
        severity="medium" if open_ else "high",
        ends=not open_,
        unverified=open_,
        headline=f"OpenRLHF needs {needed} GPUs of {there}",
        evidence=(
            ", ".join(f"{count} for {name}" for name, count in groups),
            "Ray waits silently for the missing GPUs",
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
    """Return GPUs of a group; 0 where what the launch says is not a number."""
    product = 1
    options = view.launch.options
    for name, default in (("num_nodes", 1), ("num_gpus_per_node", 8)):
        text = options.get(f"{group}_{name}", options.get(f"{group}.{name}"))
        product *= int(str(text)) if str(text).isdigit() else default if text is None else 0
    return product


def _is_on(view: View, *names: str) -> bool:
    return any(str(view.launch.options.get(name, False)).lower() == "true" for name in names)


_LEAST_BYTES = 1 << 30


@rule("GL056", SAMPLES)
def small_shared_memory(view: View) -> Flaw | None:
    """Shared memory is too small.

    Loader processes hand batches over in shared memory, and NCCL keeps buffers there: a container's
    default of 64 MB ends with a bus error.
    """
    size = view.host.shm_bytes
    if size is None or size >= _LEAST_BYTES:
        return None
    if not view.value("dataload.num_workers") and view.processes == 1:
        return None
    return Flaw(
        severity="medium",
        headline=f"shared memory (shm) has only {size / 2**20:.0f} MiB",
        evidence=("loader processes and NCCL pass data through it",),
        fixes=("docker run --shm-size=16g ...", "or --ipc=host"),
    )
