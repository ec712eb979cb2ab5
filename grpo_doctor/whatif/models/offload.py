"""Offload around a rollout switched off: removes its transfers, if GPU memory has room.

The recorded bytes show which transfers belong to which setting. The garbage collection after a
transfer has its own span.

A trace of one ZeRO stage, or of ZeRO's own offload, says too little about another.
"""

from __future__ import annotations

from grpo_doctor.whatif.models.cost_model import NOTHING, Case, CostModel, Effect, UnsupportedError
from grpo_doctor.whatif.room import room_for_offloaded
from grpo_doctor.whatif.step_model import Edit, without

BYTES = {"offload.model": "offload/model_bytes", "offload.optimizer": "offload/optimizer_bytes"}
COLLECT = "offload/collect"
_ERROR = 0.10


def _switches(case: Case) -> Effect:
    on = [name for name in BYTES if case.knob(name) is True]
    turned_on = [name for name in case.after if case.after[name] is True]
    if turned_on:
        raise UnsupportedError(
            f"how long the transfers of {turned_on[0]} take was not measured here"
        )
    unknown = [name for name in case.after if case.before.get(name) is None]
    if unknown and case.work_s("offload"):
        raise UnsupportedError(f"whether {unknown[0]} is on was not recorded")
    off = [name for name in on if case.after.get(name) is False]
    if not off:
        return NOTHING
    if not case.work_s("offload"):
        raise UnsupportedError("no offload span was recorded")
    assumes = _room(case)
    if len(off) == len(on):
        return Effect((without("offload"),), assumes, _ERROR)
    return Effect((Edit(("offload",), _kept_share(case, on, off)),), assumes, 2 * _ERROR)


def _kept_share(case: Case, on: list[str], off: list[str]) -> float:
    """Return which share of the bytes still moves."""
    moved = {name: case.per_step(BYTES[name]) for name in on}
    total = sum(size or 0.0 for size in moved.values())
    if None in moved.values() or not total:
        raise UnsupportedError("how the transfers split by setting was not recorded")
    return sum(moved[name] or 0.0 for name in on if name not in off) / total


def _room(case: Case) -> str:
    """Return what is taken for granted about memory."""
    room = room_for_offloaded(case.analysis)
    if room.fits is False:
        raise UnsupportedError(f"it would not fit: {room.text}")
    return "" if room.fits else f"that the model fits in memory: {room.text}"


def _collect(case: Case) -> Effect:
    if case.after["offload.gc_collect"] is not False:
        raise UnsupportedError("how long a garbage collection takes was not measured here")
    if not case.work_s(COLLECT):
        raise UnsupportedError(f"the collections have no separate span `{COLLECT}` of their own")
    return Effect((without(COLLECT),), "that the model fits in memory without it", _ERROR)


def _sleep(case: Case) -> Effect:
    if case.after["vllm.sleep_level"] != 0:
        raise UnsupportedError("what another sleep level would move was not measured here")
    if any(case.knob(name) is True for name in BYTES):
        raise UnsupportedError("which part of the offload is vLLM's sleep was not recorded")
    return Effect((without("offload"),), _room(case), _ERROR)


def _zero(case: Case) -> Effect:
    offload = case.knob("deepspeed.offload_optimizer") or case.knob("deepspeed.offload_param")
    if offload:
        raise UnsupportedError(
            "with ZeRO-Offload the optimizer's arithmetic moves too, and this run does not show "
            "its time on the GPU"
        )
    raise UnsupportedError(
        "gathers of another ZeRO stage overlap with compute differently than this run's"
    )


MODELS = (
    CostModel("offload off", ("offload.model", "offload.optimizer"), _switches),
    CostModel("no garbage collection after offload", ("offload.gc_collect",), _collect),
    CostModel("vLLM stays awake", ("vllm.sleep_level",), _sleep),
    CostModel(
        "ZeRO",
        (
            "deepspeed.preset",
            "deepspeed.stage",
            "deepspeed.offload_optimizer",
            "deepspeed.offload_param",
        ),
        _zero,
    ),
)
