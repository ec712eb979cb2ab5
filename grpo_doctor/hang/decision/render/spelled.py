"""Fixes, with options as the job's framework takes them."""

from __future__ import annotations

from typing import Any

import msgspec

from grpo_doctor import knobs
from grpo_doctor.hang.verdict import Fix, Verdict

# What to set a knob to when it is a fix for a hang.
_VALUES: dict[str, Any] = {
    "dataload.num_workers": 0,
    "offload.optimizer": False,
    "offload.gc_collect": False,
    "checkpoint.save_only_model": True,
    "vllm.gpu_memory_utilization": 0.6,
}


def spelled(verdict: Verdict, framework: str) -> Verdict:
    """The verdict with every fix's option spelled, where this framework has the option."""
    return msgspec.structs.replace(
        verdict, fixes=tuple(_spelled(fix, framework) for fix in verdict.fixes)
    )


def _spelled(fix: Fix, framework: str) -> Fix:
    if (
        fix.spelling is not None
        or fix.knob is None
        or fix.knob not in _VALUES
        or framework not in knobs.FRAMEWORKS
    ):
        return fix
    spelling = knobs.spell(framework, None, fix.knob, _VALUES[fix.knob])
    return msgspec.structs.replace(fix, spelling=spelling)
