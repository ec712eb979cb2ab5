"""The rules, one per file. A file that is not named here does not exist; a test says so."""

from __future__ import annotations

from grpo_doctor.findings.rule import RuleFile
from grpo_doctor.findings.rules import (
    gd001_needless_offload,
    gd002_data_starvation,
    gd003_rollout_without_vllm,
    gd004_straggler,
    gd005_unaccounted_time,
    gd006_unused_gpu_memory,
)

ALL: tuple[RuleFile, ...] = (
    gd001_needless_offload,
    gd002_data_starvation,
    gd003_rollout_without_vllm,
    gd004_straggler,
    gd005_unaccounted_time,
    gd006_unused_gpu_memory,
)
