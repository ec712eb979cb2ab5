"""All that the memory of a job depends on, in one record without any framework's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grpo_doctor.memory.models.shape import Linear, ModelShape

GIB = 1 << 30
Engine = Literal["torch", "deepspeed", "fsdp", "megatron", "device_map"]
"""What holds the trained model: plain or DDP, DeepSpeed, FSDP, Megatron, layers over the cards."""
Loss = str
"""How logits become a loss: one of `loss_bytes_per_logit` in `memory_facts.json`."""
Rollout = Literal["none", "generate", "colocate", "server"]
Attention = Literal["fused", "flash", "eager"]
Recompute = Literal["full", "selective", "none"]


@dataclass(frozen=True, slots=True)
class RolloutEngine:
    """vLLM or SGLang on a card; shares are of the whole card."""

    name: Literal["vllm", "sglang"] = "vllm"
    version: str | None = None
    memory_share: float = 0.9
    cache_bytes: int | None = None
    """`kv_cache_memory_bytes`, which counts instead of the share."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    """Copies that divide their experts among each other, and nothing else."""
    max_model_len: int | None = None
    max_sequences: int = 256
    max_batched_tokens: int = 8192
    cache_element_bytes: int = 2
    weight_bits: int = 16
    """8 if it quantizes the weights itself."""
    loads_whole: bool = False
    """All weights are there in 16 bits before the first is quantized."""
    eager: bool = False
    sleep_level: int = 0


@dataclass(frozen=True, slots=True)
class Setup:
    """One training job on cards of one kind; sizes in bytes, lengths in tokens."""

    model: ModelShape
    card_bytes: int
    ranks: int = 1
    """Training processes of all hosts; with `device_map` the cards of the only process."""
    ranks_per_node: int | None = None
    engine: Engine = "torch"
    framework: str = ""
    version: str | None = None
    # what is trained
    method: Literal["full", "lora"] = "full"
    base_bits: int = 16
    tables_in_float32: bool = False
    """bitsandbytes with PEFT's `prepare_model_for_kbit_training`: what is not quantized."""
    lora_rank: int = 8
    lora_targets: Literal["all-linear", "attention"] = "all-linear"
    fully_trained_tables: int = 0
    """With LoRA: tables (embedding, head) that are trained whole."""
    fused_experts: bool = False
    """Experts are one parameter, as in transformers 5; adapters' products are next to them."""
    freeze_vision: bool = True
    freeze_aligner: bool = True
    trained_dtype_bytes: int = 2
    optimizer: str = "adamw"
    # how it is divided
    zero_stage: int = 0
    zero_offload_optimizer: bool = False
    zero_offload_parameters: bool = False
    shard_ranks: int | None = None
    """Ranks among which FSDP divides, where several groups of them hold the same."""
    reshards: bool = True
    """FSDP gives gathered weights back after the forward pass."""
    wraps_tables: bool = True
    """FSDP gathers the embedding apart from the head, and only while it is used."""
    flat_parameters: bool = False
    """FSDP1: a group is one tensor, gathered in place."""
    tensor_parallel: int = 1
    sequence_parallel: bool = True
    """Tensor parallelism divides what is outside of matrix products too."""
    pipeline_parallel: int = 1
    expert_parallel: int = 1
    """Ranks among which a layer's experts are divided, whole ones or parts of each."""
    context_parallel: int = 1
    distributed_optimizer: bool = True
    optimizer_offload_share: float = 0.0
    gather_for_generation: bool = True
    overlaps_reduction: bool = False
    """ZeRO reduces gradients during the backward pass, from a second bucket."""
    # what a micro-batch is
    micro_batch: int = 1
    logprob_micro_batch: int | None = None
    train_tokens: int | None = None
    """Tokens up to which rows fill a rank's micro-batch, instead of `micro_batch` rows."""
    logprob_tokens: int | None = None
    most_rows: int | None = None
    """Rows that a rank has for its micro-batches up to a budget, at most."""
    most_logprob_rows: int | None = None
    prompt_tokens: int = 512
    completion_tokens: int = 0
    """0: the loss is over the whole sequence."""
    packing: bool = False
    padding_free: bool = False
    usual_row_tokens: int | None = None
    """Mean length of the data's rows, and below the longest; None: of usual instruction data."""
    longest_row_tokens: int | None = None
    paired: bool = False
    """A chosen and a rejected answer per row (DPO, reward models)."""
    recompute: Recompute = "full"
    vision_recompute: bool = True
    activations_on_host: bool = False
    attention: Attention = "fused"
    """`fused` is PyTorch's own; `eager` keeps scores of all pairs of tokens."""
    loss: Loss = "float32"
    whole_row_logits: bool = False
    """Logits of prompts are computed too and cut off."""
    scores_prompts: bool = False
    """Log-probs of prompts are computed like those of completions."""
    expandable_segments: bool = False
    # what stands beside the trained model
    reference: bool = False
    beside: tuple[ModelShape, ...] = ()
    """Teachers and reward models in the same processes."""
    critic: Setup | None = None
    """PPO's, trained in addition to the policy."""
    critic_apart: bool = False
    """The critic has GPUs of its own."""
    max_pixels: int | None = None
    old_vision_tower: bool = False
    """Of Qwen2-VL in transformers before 4.53; `memory_facts.json` says what it takes."""
    # rollouts
    rollout: Rollout = "none"
    rollout_engine: RolloutEngine = RolloutEngine()
    completions_per_rank: int = 0
    offload_weights: bool = False
    offload_optimizer: bool = False
    sync_groups: int | None = None
    sync_layered: bool = False
    """Adapters are gathered layer by layer."""
    # the host
    host_bytes: int | None = None
    loader_workers: int = 0

    @property
    def data_parallel(self) -> int:
        """Copies of the dense part of the model that each have data of their own."""
        if self.engine == "device_map":
            return 1
        return max(1, self.ranks // (self.tensor_parallel * self.pipeline_parallel))

    @property
    def shards(self) -> int:
        """Into how many parts ZeRO-3 or FSDP divide the weights."""
        ranks = self.data_parallel
        return min(ranks, self.shard_ranks) if self.shard_ranks and self.engine == "fsdp" else ranks

    @property
    def is_grpo(self) -> bool:
        """Whether the loss is over completions that were sampled."""
        return self.completion_tokens > 0

    @property
    def image_tokens(self) -> int:
        """Tokens of a sample's image, at most."""
        vision = self.model.vision
        if vision is None or not self.max_pixels:
            return 0
        return max(1, self.max_pixels // vision.pixels_per_token)


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank holds of the model before ZeRO or FSDP divide it, in elements."""

    trained: int
    trained_experts: int
    frozen: int


def share_of(setup: Setup) -> Share:
    """Return the parameters of the worst rank: the one with a table next to its layers."""
    model = setup.model
    tensor, stages = setup.tensor_parallel, setup.pipeline_parallel
    vision = model.vision_parameters + model.other_parameters
    tables = model.table_parameters
    layers = model.parameters - vision - model.expert_parameters - tables
    if stages > 1:
        tables = model.embedding_parameters
    dense = (layers // stages + tables) // tensor
    experts = model.expert_parameters // (stages * setup.expert_parallel)
    if setup.engine == "device_map":
        dense, experts = dense // setup.ranks, experts // setup.ranks
        vision //= setup.ranks
    if setup.method == "lora":
        adapters, expert_adapters = _adapters(setup)
        trained_tables = setup.fully_trained_tables * model.embedding_parameters // tensor
        return Share(adapters + trained_tables, expert_adapters, dense + experts + vision)
    trained_vision = 0 if setup.freeze_vision else model.vision_parameters
    return Share(dense + trained_vision, experts, vision - trained_vision)


def _adapters(setup: Setup) -> tuple[int, int]:
    """Parameters of the LoRA adapters on one rank: dense ones, those of experts."""
    stages = setup.pipeline_parallel * (setup.ranks if setup.engine == "device_map" else 1)
    dense = experts = 0
    for linear in setup.model.linears:
        if not _is_target(linear, setup):
            continue
        size = setup.lora_rank * (linear.inputs + linear.outputs) * linear.copies // stages
        if linear.part == "experts":
            if setup.fused_experts and not linear.name.endswith("down_proj"):
                # gate and up are one of twice the outputs, which PEFT gives twice the rank
                size += setup.lora_rank * linear.outputs * linear.copies // stages
            experts += size // setup.expert_parallel
        else:
            dense += size // setup.tensor_parallel
    return dense, experts


def _is_target(linear: Linear, setup: Setup) -> bool:
    if linear.part == "vision":
        return not setup.freeze_vision and setup.lora_targets == "all-linear"
    if linear.part == "aligner":
        return not setup.freeze_aligner and setup.lora_targets == "all-linear"
    if linear.name == "router":
        return setup.fused_experts and setup.lora_targets == "all-linear"
    return setup.lora_targets == "all-linear" or linear.name.endswith(("q_proj", "v_proj"))
