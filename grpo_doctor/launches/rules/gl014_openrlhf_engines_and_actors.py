"""Engines and actors do not share the same GPUs.

With all models colocated OpenRLHF puts engine and actor on the same GPUs, so engines x tensor
parallelism must be the actors' GPUs; it refuses to start otherwise.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import OPENRLHF, Flaw, View, divisors, fatal_flaw

DOMAIN = OPENRLHF


def check(view: View) -> Flaw | None:
    """The GPUs of the engines against those of the actors."""
    engines, tensor = (
        view.integer("vllm.data_parallel_size"),
        view.integer("vllm.tensor_parallel_size"),
    )
    if not view.colocated or view.value("rollout.async"):
        return None
    if not engines or not tensor or not view.processes or engines * tensor == view.processes:
        return None
    valid = [number for number in divisors(view.processes) if number <= 8]
    return fatal_flaw(
        headline=f"{engines} engines of {tensor} GPUs do not match "
        f"{view.processes} GPUs of the actor",
        evidence=(f"{engines} x {tensor} = {engines * tensor}, not {view.processes}",),
        fixes=(
            view.flag("vllm.data_parallel_size", max(1, view.processes // tensor)),
            f"or {view.flags('vllm.tensor_parallel_size', valid)}, engines to match",
        ),
        source=view.source("vllm.data_parallel_size"),
    )
