"""The options of the programs that serve rollouts to a trainer, where they have their own.

`trl vllm-serve` of 0.18 to 1.15 (later it hands over to vLLM's own command), and `swift rollout`
from 3.7 on.
"""

from __future__ import annotations

from grpo_doctor.knobs.model import Spelling
from grpo_doctor.knobs.rows import Rows
from grpo_doctor.knobs.swift import engine_key

_trl = Rows("0.18.0")
_swift = Rows("3.7.0")
_sglang = Rows("0.4.0")
_END = "1.16.0"

TRL: tuple[Spelling, ...] = (
    _trl("model.name", "model", None, until=_END),
    _trl("vllm.dtype", "dtype", "auto", until=_END),
    _trl("vllm.server_host", "host", None, until=_END),
    _trl("vllm.server_port", "port", 8000, until=_END),
    _trl("vllm.gpu_memory_utilization", "gpu_memory_utilization", 0.9, until=_END),
    _trl("vllm.tensor_parallel_size", "tensor_parallel_size", 1, until=_END),
    _trl("vllm.data_parallel_size", "data_parallel_size", 1, until=_END),
    _trl("vllm.max_model_len", "max_model_len", None, until=_END),
    _trl("vllm.enforce_eager", "enforce_eager", False, until=_END),
    _trl("vllm.enable_prefix_caching", "enable_prefix_caching", None, until=_END),
)
SWIFT: tuple[Spelling, ...] = (
    _swift("model.name", "model", None),
    _swift("vllm.server_host", "host", None),
    _swift("vllm.server_port", "port", 8000),
    _swift("vllm.pipeline_parallel_size", "vllm_pipeline_parallel_size", 1),
    _swift("vllm.quantization", "vllm_quantization", None),
    _swift("vllm.max_lora_rank", "vllm_max_lora_rank", 16),
    _swift("vllm.gpu_memory_utilization", "vllm_gpu_memory_utilization", 0.9),
    _swift("vllm.tensor_parallel_size", "vllm_tensor_parallel_size", 1),
    _swift("vllm.data_parallel_size", "vllm_data_parallel_size", 1),
    _swift("vllm.max_model_len", "vllm_max_model_len", None),
    _swift("vllm.max_num_seqs", "vllm_max_num_seqs", 256, ("3.11.0", None)),
    engine_key("max_num_batched_tokens"),
    _swift("vllm.enforce_eager", "vllm_enforce_eager", False),
    _swift("vllm.enable_prefix_caching", "vllm_enable_prefix_caching", False, ("3.10.0", None)),
    _swift("vllm.enable_lora", "vllm_enable_lora", False, since="3.10.0"),
    _swift("vllm.disable_custom_all_reduce", "vllm_disable_custom_all_reduce", True),
)
SGLANG: tuple[Spelling, ...] = (
    _sglang("model.name", "model_path", None),
    # Its share is of what is free for weights and cache together, not of the card.
    _sglang("vllm.gpu_memory_utilization", "mem_fraction_static", None),
    _sglang("vllm.tensor_parallel_size", "tp_size", 1),
    _sglang("vllm.pipeline_parallel_size", "pp_size", 1),
    _sglang("vllm.data_parallel_size", "dp_size", 1),
    _sglang("vllm.max_model_len", "context_length", None),
    _sglang("vllm.max_num_seqs", "max_running_requests", None),
    _sglang("vllm.dtype", "dtype", "auto"),
    _sglang("vllm.quantization", "quantization", None),
    _sglang("vllm.kv_cache_dtype", "kv_cache_dtype", "auto"),
    _sglang("vllm.server_host", "host", "127.0.0.1"),
    _sglang("vllm.server_port", "port", 30000),
)
