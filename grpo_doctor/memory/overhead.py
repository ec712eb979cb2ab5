"""What lies on a card whatever the model: CUDA's context, communicators, ZeRO's buffers."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor.memory.facts import Calibration, facts
from grpo_doctor.memory.ledger import Component, Row, entries
from grpo_doctor.memory.setup import GIB, Setup, share_of
from grpo_doctor.memory.states import frozen_bytes, trained_bytes


def context(setup: Setup, factors: Calibration) -> tuple[Component, ...]:
    """Outside PyTorch's allocator: nvidia-smi shows it, `memory_reserved` does not."""
    fact = facts()["overhead"]
    megatron = setup.engine == "megatron"  # TransformerEngine loads its kernels at once
    loading = fact["eager_context_bytes" if megatron else "context_bytes"]
    rows: list[Row] = [
        ("CUDA context", loading["bytes"], loading["source"], loading["source"], None)
    ]
    groups, peers = _groups(setup), _peers(setup)
    if groups:
        first, each = fact["communicator_bytes"], factors.communicator
        size = first["bytes"] + (groups - 1) * each * GIB
        formula = f"1.45 GiB, and {each:g} GiB for each of {groups - 1} more"
        rows.append(("NCCL buffers", size, formula, first["source"], None))
    if groups and peers:
        each, source = fact["exchange_bytes"]["bytes"], fact["exchange_bytes"]["source"]
        rows.append(("NCCL exchanges", peers * each, f"{peers} peers x 0.44 GiB", source, None))
    return entries(factors.spread_overhead, *rows)


def _peers(setup: Setup) -> int:
    """Ranks of a host to which an all-to-all of experts or of Ulysses sends directly."""
    host = setup.ranks_per_node or setup.ranks
    sequences = setup.context_parallel if setup.engine == "fsdp" else 1
    return sum(min(size, host) - 1 for size in (setup.expert_parallel, sequences))


def _groups(setup: Setup) -> int:
    """NCCL communicators of a rank: of all ranks, and of each dimension with ranks of its own."""
    if setup.ranks == 1 or setup.engine == "device_map":
        return 0
    # That of experts is counted as exchanges: nothing was measured with both.
    dimensions = [setup.tensor_parallel, setup.pipeline_parallel, setup.context_parallel]
    if setup.engine == "megatron":
        dimensions.append(setup.data_parallel)
    return 1 + sum(size > 1 for size in dimensions)


def buffers(setup: Setup, factors: Calibration) -> tuple[Component, ...]:
    """Inside the allocator: workspaces, buckets of ZeRO and DDP, gathered parameters."""
    zero, stage = facts()["deepspeed"], setup.zero_stage if setup.engine == "deepspeed" else 0
    workspace = facts()["overhead"]["workspace_bytes"]
    rows: list[Row] = [
        ("workspaces", workspace["bytes"], workspace["source"], workspace["source"], None)
    ]
    if stage:
        sizes = zero["bucket_elements"]
        bucket = sizes.get(setup.framework, sizes["default"])
        if stage == 3:  # `auto` of transformers
            bucket = setup.model.hidden**2
        copies = 2 if setup.overlaps_reduction else 1
        formula = f"{copies} x {bucket / 1e9:.2f}e9 x 2 B"
        rows.append(("ZeRO buckets", copies * 2 * bucket, formula, sizes["source"],
                     "deepspeed.overlap_comm"))  # fmt: skip
    if stage == 3:
        rows.append(("gathered parameters", gathered_bytes(setup), "min(1e9, parameters) x 2 B",
                     zero["live_parameters"]["source"], "deepspeed.stage"))  # fmt: skip
    buckets: tuple[Component, ...] = ()
    if setup.engine == "torch" and setup.ranks > 1:
        share, each = share_of(setup), trained_bytes(setup)
        trained = share.trained + share.trained_experts
        source = "DistributedDataParallel without gradient_as_bucket_view"
        formula = f"{trained / 1e9:.2f}e9 x {each} B"
        row = ("DDP buckets", trained * each, formula, source, "deepspeed.stage")
        buckets = entries(factors.spread_states, row)
    return (*entries(factors.spread_overhead, *rows), *buckets)


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
    """Each moment of a pass through the model, as FSDP goes through its groups."""
    model, shards = setup.model, setup.shards
    alone = setup.data_parallel == 1  # even then float32 weights are gathered in 16 bits
    if setup.engine != "fsdp" or (alone and setup.trained_dtype_bytes == 2):
        return Gathered()
    layer, table = model.layer_parameters, model.embedding_parameters
    apart, twice = setup.wraps_tables and not model.tied, model.tied and model.head
    root = 0 if apart else model.table_parameters
    group = root or table
    held = 2 * root + (2 * layer if setup.reshards else 2 * layer * model.layers)
    trained = setup.method == "full"
    reduced = 4 + (2 if setup.trained_dtype_bytes == 2 else 0)
    head = (6 * table + reduced * table // shards) if trained else 4 * table
    end = 6 * group + reduced * group // shards
    start, part = 4 * (group + (layer if root else 0)), 0
    if setup.flat_parameters:  # a rank's part in 16 bits is gathered in place
        part = 0 if alone else 2 * layer // shards
        start = 2 * group if alone else 2 * group + 2 * group // shards
        end = (8 if twice else 6) * group + (0 if alone else 4 * group // shards)
    elif root:
        end = max(8 * root + 4 * layer, end)
        if not twice:
            end = max(6 * root, 5 * root + reduced * root // shards)
    return Gathered(
        root=root,
        start=start,
        head=held + 2 * table * (apart and model.head),
        head_alone=(held + max(head, 4 * table)) * (apart and model.head),
        layer=held + 2 * layer + part,
        reducing=(4 * layer + part) * trained,
        end=end * trained,
    )


def whole_model_bytes(setup: Setup) -> int:
    """The trained model in 16 bits, not divided by ZeRO or FSDP."""
    share = share_of(setup)
    return round(2 * (share.trained + share.trained_experts) + frozen_bytes(setup, share))
