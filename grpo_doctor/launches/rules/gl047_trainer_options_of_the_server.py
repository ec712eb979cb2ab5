"""The server's options stand at the trainer.

In server mode the engine belongs to the server's command. What the trainer is told of its share
of memory, its parallelism or its length does nothing there.
"""

from __future__ import annotations

from grpo_doctor.launches.rule import SWIFT_AND_TRL, Flaw, View

DOMAIN = SWIFT_AND_TRL
_KNOBS = ("vllm.gpu_memory_utilization", "vllm.tensor_parallel_size", "vllm.max_model_len")


def check(view: View) -> Flaw | None:
    """Engine options at a trainer in server mode."""
    ignored = [knob for knob in _KNOBS if view.sets(knob)]
    if not ignored or view.value("vllm.mode") != "server":
        return None
    if not view.value("vllm.use"):
        return None
    command = "swift rollout" if view.launch.framework == "ms-swift" else "trl vllm-serve"
    return Flaw(
        severity="low",
        headline="options of the engine do nothing at the trainer in server mode",
        evidence=(", ".join(view.flag(knob, view.value(knob)) for knob in ignored),),
        fixes=(f"give them to `{command}`",),
        source=view.source(*ignored),
    )
