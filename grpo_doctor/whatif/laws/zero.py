"""ZeRO stages and ZeRO's own offload: a trace of one says too little about another."""

from __future__ import annotations

from grpo_doctor.whatif.laws.law import Case, Effect, Law, UnsupportedError


def _withheld(case: Case) -> Effect:
    offload = case.knob("deepspeed.offload_optimizer") or case.knob("deepspeed.offload_param")
    if offload:
        raise UnsupportedError(
            "with ZeRO-Offload the arithmetic moves too, and how long the device would take for "
            "it can't be seen in this run"
        )
    raise UnsupportedError(
        "gathers of another ZeRO stage overlap with computing in another way than this run's"
    )


LAWS = (
    Law(
        "ZeRO",
        (
            "deepspeed.preset",
            "deepspeed.stage",
            "deepspeed.offload_optimizer",
            "deepspeed.offload_param",
        ),
        _withheld,
    ),
)
