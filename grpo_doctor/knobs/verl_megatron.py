"""verl's options where it trains with Megatron (`model_engine=megatron`), read from 0.4 to 0.9.

What it shares with FSDP is taken from there; named here is what differs.
"""

from __future__ import annotations

from grpo_doctor.knobs import verl
from grpo_doctor.knobs.model import Spelling
from grpo_doctor.knobs.rows import Rows, inherited

_row = Rows("0.4.0")
_MEGATRON = "actor_rollout_ref.actor.megatron."
_OWN: tuple[Spelling, ...] = (
    _row("parallel.strategy", "actor_rollout_ref.actor.strategy", "megatron"),
    _row("parallel.tensor", _MEGATRON + "tensor_model_parallel_size", 1),
    _row("parallel.pipeline", _MEGATRON + "pipeline_model_parallel_size", 1),
    _row("parallel.virtual_pipeline", _MEGATRON + "virtual_pipeline_model_parallel_size", None),
    _row("parallel.expert", _MEGATRON + "expert_model_parallel_size", 1),
    _row("parallel.context", _MEGATRON + "context_parallel_size", 1),
    _row("parallel.sequence", _MEGATRON + "sequence_parallel", True),
    _row("parallel.distributed_optimizer", _MEGATRON + "use_distributed_optimizer", True),
    _row(
        "parallel.recompute",
        _MEGATRON + "override_transformer_config.recompute_granularity",
        None,
        since="0.5.0",
    ),
    _row("offload.model", _MEGATRON + "param_offload", False),
    _row("offload.optimizer", _MEGATRON + "optimizer_offload", False),
    _row("offload.reference", "actor_rollout_ref.ref.megatron.param_offload", False),
)
_ABSENT = ("parallel.fsdp_size", "parallel.reshard", "parallel.fsdp_offload")
SPELLINGS = inherited(verl.SPELLINGS, _OWN, absent=_ABSENT)
