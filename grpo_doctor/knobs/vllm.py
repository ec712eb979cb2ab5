"""vLLM's own options (`vllm serve`), for a server that is separate from the trainer.

Held against the engine arguments of 0.32; the documentation of older versions has the same names.
"""

from __future__ import annotations

from grpo_doctor.knobs.model import Spelling
from grpo_doctor.knobs.rows import Rows

_row = Rows("0.10.0")

SPELLINGS: tuple[Spelling, ...] = (
    _row("model.name", "model", None),
    _row("vllm.gpu_memory_utilization", "gpu_memory_utilization", 0.9, ("0.24.0", 0.92)),
    _row("vllm.tensor_parallel_size", "tensor_parallel_size", 1),
    _row("vllm.data_parallel_size", "data_parallel_size", 1),
    _row("vllm.max_model_len", "max_model_len", None),
    _row("vllm.max_num_seqs", "max_num_seqs", None),
    _row("vllm.max_num_batched_tokens", "max_num_batched_tokens", None),
    _row("vllm.enable_chunked_prefill", "enable_chunked_prefill", None),
    _row("vllm.enforce_eager", "enforce_eager", False),
    _row("vllm.enable_prefix_caching", "enable_prefix_caching", None),
    _row("vllm.enable_lora", "enable_lora", False),
    # A plain switch: there is no `--no-disable-log-stats`.
    _row("vllm.disable_log_stats", "disable_log_stats", False, values=((True, True),)),
    _row("vllm.disable_custom_all_reduce", "disable_custom_all_reduce", False),
    _row("vllm.pipeline_parallel_size", "pipeline_parallel_size", 1),
    _row("vllm.kv_cache_memory_bytes", "kv_cache_memory_bytes", None),
    _row("vllm.kv_cache_dtype", "kv_cache_dtype", "auto"),
    _row("vllm.quantization", "quantization", None),
    _row("vllm.dtype", "dtype", "auto"),
    _row("vllm.max_lora_rank", "max_lora_rank", 16),
)
