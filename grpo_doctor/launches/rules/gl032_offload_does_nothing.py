"""An offload flag that does nothing.

ms-swift's --offload_model and --offload_optimizer move states away while a colocated vLLM rolls
out. Without vLLM, or with a server, there is no such moment. With DeepSpeed's own offload the
optimizer is on the host already.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import Domain, Flaw, View

DOMAIN = Domain(("ms-swift", "bundled"), whole=True)
_KNOBS = ("offload.model", "offload.optimizer")


def check(view: View) -> Flaw | None:
    """Each offload flag that is on, against what it acts on."""
    on = [knob for knob in _KNOBS if view.launch.settings.get(knob)]
    if not on:
        return None
    if not view.value("vllm.use"):
        why = "they act while vLLM generates, and it is not used"
    elif not view.colocated:
        why = "they make room for a vLLM on the same GPU, and it is elsewhere"
    elif "offload.optimizer" in on and view.value("deepspeed.offload_optimizer"):
        on, why = ["offload.optimizer"], "DeepSpeed keeps the optimizer on the host already"
    else:
        return None
    if view.launch.framework == "bundled" and not view.value("vllm.use"):
        return None
    flags = " and ".join(view.flag(knob, True) for knob in on)
    return Flaw(
        severity="low",
        headline=f"{flags} do{'es' * (len(on) == 1)} nothing",
        evidence=(why,),
        fixes=(f"leave out {flags}",),
        source=view.source(*on),
    )
