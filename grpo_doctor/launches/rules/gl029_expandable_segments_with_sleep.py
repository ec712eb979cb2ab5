"""expandable_segments and sleep mode exclude each other.

vLLM's sleep mode keeps weights and cache in a memory pool of its own, which PyTorch's expandable
segments cannot be used with: vLLM ends with an assertion at start. ms-swift since 3.9, verl, and
vLLM 0.32 itself switch the setting off around the rollout.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SAMPLED, Domain, Flaw, View, fatal_flaw

DOMAIN = Domain(("bundled", "ms-swift", "trl", "openrlhf"), SAMPLED)
_SWITCHES_IT_OFF = (0, 32, 0)  # the oldest vLLM that was seen to do so; some before may


def check(view: View) -> Flaw | None:
    """The allocator's setting where the engine shares the process."""
    names = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    set_names = [n for n in names if "expandable_segments:true" in _environment(view, n)]
    if not set_names or not view.colocated or not view.sleeps:
        return None
    if view.launch.framework == "ms-swift" and view.at_least("3.9.0"):
        return None
    vllm = view.package("vllm")
    if vllm is not None and vllm >= _SWITCHES_IT_OFF:
        return None
    return fatal_flaw(
        headline="expandable_segments and vLLM's sleep mode exclude each other",
        evidence=(f"{set_names[0]} has expandable_segments:True, and the engine sleeps",),
        fixes=(f"unset {set_names[0]}", f"or {view.flag('vllm.sleep_level', 0)}"),
        source=view.source("vllm.sleep_level"),
    )


def _environment(view: View, name: str) -> str:
    return view.launch.environment.get(name, "").replace(" ", "").lower()
