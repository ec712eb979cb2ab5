"""Options of `megatron rlhf`, ms-swift's command for Megatron, read from 3.11 to 4.6.

What it shares with `swift rlhf` is taken from there; named here is what differs.
"""

from __future__ import annotations

from grpo_doctor.knobs import swift
from grpo_doctor.knobs.model import Spelling
from grpo_doctor.knobs.rows import Rows, inherited

_row = Rows("3.11.0")
_OWN: tuple[Spelling, ...] = (
    _row("parallel.tensor", "tensor_model_parallel_size", 1),
    _row("parallel.pipeline", "pipeline_model_parallel_size", 1),
    _row("parallel.virtual_pipeline", "virtual_pipeline_model_parallel_size", None),
    _row("parallel.expert", "expert_model_parallel_size", 1),
    _row("parallel.context", "context_parallel_size", 1),
    _row("parallel.sequence", "sequence_parallel", False),
    _row("parallel.distributed_optimizer", "use_distributed_optimizer", True),
    _row("parallel.recompute", "recompute_granularity", "selective"),
    _row("train.micro_batch", "micro_batch_size", 1),
    _row("train.completions_per_step", "global_batch_size", 16),
    _row("train.type", "train_type", "full", until="4.0.0"),
    _row("train.type", "tuner_type", "full", since="4.0.0"),
    _row("train.optimizer", "optimizer", "adam"),
    _row("train.learning_rate", "lr", None),
    _row("train.lr_scheduler", "lr_decay_style", "cosine"),
    _row("train.warmup_steps", "lr_warmup_iters", 0),
    _row("train.max_grad_norm", "clip_grad", 1.0),
    _row("train.max_steps", "train_iters", None),
    _row("train.padding_free", "padding_free", True),
    _row("dataload.num_workers", "num_workers", 4, until="4.0.0"),
    _row("dataload.num_workers", "dataloader_num_workers", 4, since="4.0.0"),
    _row("checkpoint.directory", "save", None, until="4.0.0"),
    _row("checkpoint.directory", "output_dir", None, since="4.0.0"),
    _row("checkpoint.save_steps", "save_interval", 500, until="4.0.0"),
    _row("checkpoint.save_steps", "save_steps", 500, since="4.0.0"),
    _row("checkpoint.save_only_model", "no_save_optim", False),
)
_ABSENT = ("deepspeed.preset", "parallel.strategy", "train.gradient_checkpointing")
SPELLINGS = inherited(swift.SPELLINGS, _OWN, absent=_ABSENT)
