"""vLLM's mode is not set.

Since 3.12 ms-swift has no default for --vllm_mode and refuses to start with --use_vllm alone.
"""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.launches.rule import SWIFT, Flaw, View, fatal_flaw

DOMAIN = replace(SWIFT, trainings=("grpo", "gkd"), whole=True)


def check(view: View) -> Flaw | None:
    """use_vllm without a mode."""
    if not view.at_least("3.12.0") or view.launch.options.get("use_ray"):
        return None
    options = view.launch.options  # with Ray its groups of GPUs say it
    if not view.launch.settings.get("vllm.use") or {"vllm_mode", "use_ray"} & options.keys():
        return None
    return fatal_flaw(
        headline="--use_vllm needs --vllm_mode",
        evidence=("since ms-swift 3.12 there is no default",),
        fixes=("--vllm_mode colocate", "or --vllm_mode server, with `swift rollout` on other GPUs"),
        source=view.source("vllm.use"),
    )
