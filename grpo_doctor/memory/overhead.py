"""What lies on a card whatever the model: CUDA's context, communicators, ZeRO's buffers."""

from __future__ import annotations

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
    return tuple(entries)


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
    if setup.engine == "deepspeed" and setup.zero_stage in (1, 2):
        trained = share_of(setup).trained
        elements = facts()["deepspeed"]["bucket_elements"]
        bucket = min(trained, elements.get(setup.framework, elements["default"]))
        entries.append(
            Component("ZeRO buckets", 2 * 2 * bucket, f"2 x {bucket / 1e9:.2f}e9 x 2 B",
                      "deepspeed reduce_bucket_size, overlap_comm", "deepspeed.overlap_comm",
                      factors.spread_overhead)
        )  # fmt: skip
    if setup.engine == "torch" and setup.ranks > 1:
        share = share_of(setup)
        trained, each = share.trained + share.trained_experts, trained_bytes(setup)
        entries.append(
            Component("DDP buckets", trained * each, f"{trained / 1e9:.2f}e9 x {each} B",
                      "DistributedDataParallel without gradient_as_bucket_view",
                      "deepspeed.stage", factors.spread_states)
        )  # fmt: skip
    gathered = gathered_bytes(setup)
    if gathered:
        formula = "two layers and the tables x 2 B" if setup.reshards else "parameters x 2 B"
        entries.append(
            Component("gathered parameters", gathered, "min(1e9, parameters) x 2 B"
                      if setup.engine == "deepspeed" else formula,
                      facts()["deepspeed"]["live_parameters"]["source"]
                      if setup.engine == "deepspeed" else "torch.distributed.fsdp",
                      "deepspeed.stage", factors.spread_overhead)
        )  # fmt: skip
    return tuple(entries)


def gathered_bytes(setup: Setup) -> int:
    """Whole parameters that ZeRO-3 or FSDP hold for the layers at work."""
    model = setup.model
    if setup.engine == "fsdp" and setup.data_parallel > 1:
        if not setup.reshards:
            return 2 * model.parameters
        tables = model.embedding_parameters if setup.wraps_tables else model.table_parameters
        return 2 * (2 * model.layer_parameters + tables)
    if setup.engine == "deepspeed" and setup.zero_stage == 3:
        live = int(facts()["deepspeed"]["live_parameters"]["elements"])
        return 2 * min(model.parameters, max(live, model.layer_parameters))
    return 0


def whole_model_bytes(setup: Setup) -> int:
    """The trained model in 16 bits, not divided by ZeRO or FSDP."""
    share = share_of(setup)
    return round(2 * (share.trained + share.trained_experts) + frozen_bytes(setup, share))


def _entry(name: str, fact: dict[str, object], factors: Calibration) -> Component:
    source = str(fact["source"])
    return Component(name, int(str(fact["bytes"])), source, source, None, factors.spread_overhead)
