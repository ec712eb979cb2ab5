"""Options of an engine that is not used.

Without use_vllm completions come from transformers, many times slower, and vllm_... options are
read by nobody: mostly use_vllm was forgotten.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.launches.rule import PLAIN_LIKE_TRL, Flaw, View

DOMAIN = replace(PLAIN_LIKE_TRL, whole=True)
_KNOBS = (
    "vllm.gpu_memory_utilization",
    "vllm.tensor_parallel_size",
    "vllm.max_model_len",
    "vllm.mode",
)


def check(view: View) -> Flaw | None:
    """vllm_... options where vLLM is off."""
    ignored = [knob for knob in _KNOBS if view.sets(knob)]
    if view.value("vllm.use") or not ignored:
        return None
    ends = (
        view.launch.framework == "ms-swift" and view.sets("vllm.mode") and view.at_least("3.12.0")
    )
    return Flaw(
        severity="high" if ends else "medium",
        headline="vLLM's options are given, but vLLM is not used",
        evidence=("use_vllm is off: transformers generates, many times slower",),
        fixes=(view.flag("vllm.use", True),),
        source=view.source(*ignored),
        ends=ends,
    )
