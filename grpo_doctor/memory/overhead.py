"""What lies on a card whatever the model: CUDA's context, communicators, ZeRO's buffers."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.memory.facts import Calibration, facts
from grpo_doctor.memory.ledger import Component
from grpo_doctor.memory.setup import GIB, Setup, share_of
from grpo_doctor.memory.states import frozen_bytes, trained_bytes


def context(setup: Setup, factors: Calibration) -> tuple[Component, ...]:
    """Outside PyTorch's allocator: nvidia-smi shows it, `memory_reserved` does not."""
    fact = facts()["overhead"]
    megatron = setup.engine == "megatron"  # TransformerEngine loads its kernels at once
    loading = fact["eager_context_bytes" if megatron else "context_bytes"]
    entries = [_entry("CUDA context", loading, factors)]
    groups = _groups(setup)
    if groups:
        first = int(fact["communicator_bytes"]["bytes"])
        size = first + round((groups - 1) * factors.communicator * GIB)
        entries.append(
            Component("NCCL buffers", size,
                      f"1.45 GiB, and {factors.communicator:g} GiB for each of {groups - 1} more",
                      fact["communicator_bytes"]["source"], None, factors.spread_overhead)
        )  # fmt: skip
        peers = _peers(setup)
        if peers:
            exchange = fact["exchange_bytes"]
            entries.append(
                Component("NCCL exchanges", peers * int(exchange["bytes"]),
                          f"{peers} peers x 0.44 GiB", exchange["source"], None,
                          factors.spread_overhead)
            )  # fmt: skip
    return tuple(entries)


def _peers(setup: Setup) -> int:
    """Ranks of a host to which an all-to-all of experts or of Ulysses sends directly."""
    host = setup.ranks_per_node or setup.ranks
    sequences = setup.context_parallel if setup.engine == "fsdp" else 1
    return sum(min(size, host) - 1 for size in (setup.expert_parallel, sequences))


def _groups(setup: Setup) -> int:
    """NCCL communicators of a rank: of all ranks, and of each dimension with ranks of its own."""
    if setup.ranks == 1 or setup.engine == "device_map":
        return 0
    dimensions = [setup.tensor_parallel, setup.pipeline_parallel]
    dimensions += [setup.expert_parallel, setup.context_parallel]
    if setup.engine == "megatron":
        dimensions.append(setup.data_parallel)
    return 1 + sum(size > 1 for size in dimensions)


def buffers(setup: Setup, factors: Calibration) -> tuple[Component, ...]:
    """Inside the allocator: workspaces, buckets of ZeRO and DDP, gathered parameters."""
    entries = [_entry("workspaces", facts()["overhead"]["workspace_bytes"], factors)]
    if setup.engine == "deepspeed" and setup.zero_stage:
        elements = facts()["deepspeed"]["bucket_elements"]
        bucket = elements.get(setup.framework, elements["default"])
        if setup.zero_stage == 3:  # `auto` of transformers
            bucket = setup.model.hidden**2
        copies = 2 if setup.overlaps_reduction else 1
        entries.append(
            Component("ZeRO buckets", copies * 2 * bucket,
                      f"{copies} x {bucket / 1e9:.2f}e9 x 2 B", elements["source"],
                      "deepspeed.overlap_comm", factors.spread_overhead)
        )  # fmt: skip
    if setup.engine == "torch" and setup.ranks > 1:
        share = share_of(setup)
        trained, each = share.trained + share.trained_experts, trained_bytes(setup)
        entries.append(
            Component("DDP buckets", trained * each, f"{trained / 1e9:.2f}e9 x {each} B",
                      "DistributedDataParallel without gradient_as_bucket_view",
                      "deepspeed.stage", factors.spread_states)
        )  # fmt: skip
    if setup.engine == "deepspeed" and setup.zero_stage == 3:
        entries.append(
            Component("gathered parameters", gathered_bytes(setup), "min(1e9, parameters) x 2 B",
                      facts()["deepspeed"]["live_parameters"]["source"], "deepspeed.stage",
                      factors.spread_overhead)
        )  # fmt: skip
    return tuple(entries)


def gathered_bytes(setup: Setup) -> int:
    """Return bytes of whole parameters that ZeRO-3 or FSDP hold for the running layers."""
    model = setup.model
    if setup.engine == "deepspeed" and setup.zero_stage == 3:
        live = int(facts()["deepspeed"]["live_parameters"]["elements"])
        return 2 * min(model.parameters, max(live, model.layer_parameters))
    if setup.engine == "fsdp" and setup.data_parallel > 1:
        return setup.trained_dtype_bytes * max(model.embedding_parameters, model.layer_parameters)
    return 0


@dataclass(frozen=True, slots=True)
class Gathered:
    """What FSDP holds in addition to its shards: whole parameters, moving gradients, in bytes."""

    root: int = 0
    """Elements of the root's group, which stays gathered through the backward pass."""
    start: int = 0
    """The root's group and the first layer, in the buffers that they are gathered into too."""
    head: int = 0
    head_alone: int = 0
    """A head of its own while it is gathered, or its gradient is copied into float32."""
    layer: int = 0
    reducing: int = 0
    """The gradients of the layer before, on their way."""
    end: int = 0
    """The root's gradients."""


def gathered(setup: Setup) -> Gathered:
    """Each moment of a pass through the model, as FSDP2 goes through its groups."""
    model, shards = setup.model, setup.shards
    alone = setup.data_parallel == 1  # even then float32 weights are gathered in 16 bits
    if setup.engine != "fsdp" or (alone and setup.trained_dtype_bytes == 2):
        return Gathered()
    layer, table = model.layer_parameters, model.embedding_parameters
    apart = setup.wraps_tables and not model.tied
    root = 0 if apart else model.table_parameters
    group = root or table
    held = 2 * root + (2 * layer if setup.reshards else 2 * layer * model.layers)
    trained = setup.method == "full"
    reduced = 4 + (2 if setup.trained_dtype_bytes == 2 else 0)
    head = (6 * table + reduced * table // shards) if trained else 4 * table
    end = 6 * group + reduced * group // shards
    if root:
        end = max(8 * root + 4 * layer, end)
        if not model.tied:
            end = max(6 * root, 5 * root + reduced * root // shards)
    return Gathered(
        root=root,
        start=4 * (group + (layer if root else 0)),
        head=held + 2 * (table if apart else 0),
        head_alone=(held + max(head, 4 * table)) * apart,
        layer=held + 2 * layer,
        reducing=4 * layer * trained,
        end=end * trained,
    )


def whole_model_bytes(setup: Setup) -> int:
    """The trained model in 16 bits, not divided by ZeRO or FSDP."""
    share = share_of(setup)
    return round(2 * (share.trained + share.trained_experts) + frozen_bytes(setup, share))


def _entry(name: str, fact: dict[str, object], factors: Calibration) -> Component:
    source = str(fact["source"])
    return Component(name, int(str(fact["bytes"])), source, source, None, factors.spread_overhead)
