"""The canonical names of all knobs."""

from __future__ import annotations

from grpo_doctor.knobs.model import Knob

KNOBS: tuple[Knob, ...] = (
    Knob("offload.model", "bool", "move weights to host memory during the rollout"),
    Knob("offload.optimizer", "bool", "move optimizer state to host memory during the rollout"),
    Knob("offload.gc_collect", "bool", "collect garbage after each offload"),
    Knob("deepspeed.preset", "str", "DeepSpeed preset, or the path of its JSON file"),
    Knob("deepspeed.stage", "int", "ZeRO stage, read from the preset"),
    Knob("deepspeed.offload_optimizer", "bool", "ZeRO keeps optimizer state on the host"),
    Knob("deepspeed.offload_param", "bool", "ZeRO keeps parameters on the host"),
    Knob("vllm.use", "bool", "roll out with vLLM"),
    Knob("vllm.mode", "str", "vLLM inside the trainer's processes (colocate) or as a server"),
    Knob("vllm.gpu_memory_utilization", "float", "share of each GPU's memory that vLLM takes"),
    Knob("vllm.tensor_parallel_size", "int", "GPUs per vLLM replica"),
    Knob("vllm.max_model_len", "int", "longest prompt plus completion that vLLM has room for"),
    Knob("vllm.max_num_seqs", "int", "sequences that vLLM decodes at once"),
    Knob("vllm.enforce_eager", "bool", "run vLLM without CUDA graphs"),
    Knob("vllm.enable_prefix_caching", "bool", "compute a shared prompt once"),
    Knob("vllm.enable_lora", "bool", "send vLLM the adapter instead of merged weights"),
    Knob("vllm.sleep_level", "int", "what vLLM gives back between rollouts: 0, 1 or 2"),
    Knob("dataload.num_workers", "int", "loader processes per rank"),
    Knob("dataload.prefetch_factor", "int", "batches that each loader process prepares ahead"),
    Knob("dataload.persistent_workers", "bool", "keep loader processes between epochs"),
    Knob("data.max_pixels", "int", "largest area of an image; larger ones are scaled down"),
    Knob("rollout.num_generations", "int", "completions per prompt"),
    Knob("rollout.max_completion_length", "int", "longest completion in tokens"),
    Knob("rollout.steps_per_generation", "int", "micro-batches fed by one rollout"),
    Knob("train.micro_batch", "int", "completions per rank in one forward pass"),
    Knob("train.grad_accumulation", "int", "micro-batches per optimizer step"),
    Knob("train.gradient_checkpointing", "bool", "recompute activations, not keep them"),
    Knob("train.freeze_vit", "bool", "leave the vision tower as it is"),
    Knob("train.type", "str", "lora or full"),
    Knob("train.padding_free", "bool", "train on packed sequences"),
    Knob("sync.move_model_batches", "int", "groups of layers in which weights go to vLLM"),
    Knob("sync.gather_for_generation", "bool", "ZeRO-3: gather all weights once per rollout"),
    Knob("checkpoint.save_steps", "int", "steps between checkpoints"),
    Knob("checkpoint.save_only_model", "bool", "save weights without optimizer state"),
    Knob("run.collective_timeout_s", "int", "seconds until a stuck collective is an error"),
)
BY_NAME: dict[str, Knob] = {knob.name: knob for knob in KNOBS}
