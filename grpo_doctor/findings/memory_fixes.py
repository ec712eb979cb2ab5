"""Fixes that move memory for time: less of it used, the cheapest first, or offload switched off."""

from __future__ import annotations

import math
from collections.abc import Iterator

from grpo_doctor.findings.device_memory import Fit, room_without_offload
from grpo_doctor.findings.rule import Fix, Safety
from grpo_doctor.findings.view import RunView
from grpo_doctor.whatif import Prediction, Replay, Settings, WhatIf, Withheld, without
from grpo_doctor.whatif.room import USABLE

MICRO_BATCH, PASSES = "train.micro_batch", "train.grad_accumulation"
VLLM_SHARE = "vllm.gpu_memory_utilization"
SHARE_RISK = "vLLM fails at startup if this share is not free; then lower it by 0.05."
Pairs = tuple[tuple[str, object], ...]
_VLLMS = ("rollout", "sync", "init")
_MORE_PASSES = "Keeps the completions per optimizer step, in more passes."


def larger_share(view: RunView, free: float) -> float | None:
    """The share of the GPU that vLLM may have: what it has and the `free` share that was never
    used, less a tenth, in twentieths. None where that is no more than it has, or not known."""
    now = view.now(VLLM_SHARE)
    if now is None:
        return None
    target = math.floor(20 * min(USABLE, now + free - (1 - USABLE))) / 20
    return target if target > now else None


def fixes_for_memory(view: RunView, where: str | None) -> list[Fix]:
    """What a run may set if memory is short in the phase `where`; empty where nothing is known."""
    return [
        _joined(view, settings, _cost(view, settings), risk)
        for settings, risk in _savings(view, where)
    ]


def _savings(view: RunView, where: str | None) -> Iterator[tuple[Pairs, str]]:
    share, micro = view.now(VLLM_SHARE), view.now(MICRO_BATCH)
    passes = view.now(PASSES)
    # Old versions of ms-swift have no mode: theirs is what is called colocate now.
    colocated = view.now("vllm.use") is True and view.now("vllm.mode") != "server"
    if colocated and share and where in _VLLMS:
        less = max(0.1, round(share - 0.1, 2))
        yield ((VLLM_SHARE, less),), "Makes vLLM's cache smaller."
    if isinstance(micro, int) and micro >= 2 and micro % 2 == 0:
        half = (MICRO_BATCH, micro // 2)
        if isinstance(passes, int):
            yield (half, (PASSES, passes * 2)), _MORE_PASSES
        elif passes is None and _passes_follow(view):
            yield (half,), _MORE_PASSES
    if view.now("train.gradient_checkpointing") is False:
        on = (("train.gradient_checkpointing", True),)
        yield on, "Recomputes the layers in the backward pass."
    preset = view.now("deepspeed.preset")
    if isinstance(preset, str) and "zero2" in preset and len(view.analysis.ranks) > 1:
        stage = (("deepspeed.preset", preset.replace("zero2", "zero3")),)
        yield stage, "Gathers the weights in every pass."
    elif colocated and view.now("offload.optimizer") is False and where == "rollout":
        yield (("offload.optimizer", True),), "Moves optimizer state in every step."


def _cost(view: RunView, settings: Pairs) -> WhatIf:
    if not len(view.analysis.step_seconds):
        return Withheld("the run has no complete step")
    outcome = view.gain(Settings(settings))
    if isinstance(outcome, Prediction) and outcome.high > 0:
        cost = f"{outcome.mid:+.1f}% of the step by {outcome.grounds}"
        return Withheld(f"it costs time and frees memory: {cost}")
    return Settings(settings)


def in_passes_of(
    view: RunView, micro: int, passes: int, change: WhatIf | None = None, *, risk: str
) -> Fix:
    """Return the same completions per optimizer step in `passes` of `micro` completions each."""
    return _joined(view, ((MICRO_BATCH, micro), (PASSES, passes)), change, risk)


def _joined(view: RunView, settings: Pairs, change: WhatIf | None, risk: str) -> Fix:
    """Return all settings as one fix."""
    safety: Safety = "changes-numerics" if settings[0][0] == MICRO_BATCH else "same-math"
    spelled = [row for row in settings if row[0] != PASSES or not _passes_follow(view)]
    return view.settings(spelled, change or Settings(settings), safety=safety, risk=risk)


def _passes_follow(view: RunView) -> bool:
    """Whether the framework counts the passes itself, from the completions in each: verl, OpenRLHF
    and Megatron have a setting for these alone."""
    return bool(view.spell(MICRO_BATCH, 1)) and not view.spell(PASSES, 1)


SWITCHES = {"offload.optimizer": "the optimizer state", "offload.model": "weights"}


def switched_on(view: RunView) -> list[str]:
    """Return the settings of this run that offload something during a rollout."""
    return [name for name in SWITCHES if view.now(name) is True]


def offload_off_if_it_fits(view: RunView, *, or_unknown: bool = False) -> tuple[Fix, ...]:
    """Offload switched off where it is on and memory has room without it, or that is unknown."""
    room = room_without_offload(view)
    fits = room.fits or (or_unknown and room.fits is None)
    return (offload_off(view, room),) if fits and switched_on(view) else ()


def offload_off(view: RunView, room: Fit) -> Fix:
    """Switches off all that is on, with the replay of a run without offload spans."""
    change = Replay((without("offload"),), "without its offload spans")
    risk = (
        f"Needs GPU memory: {room.text}."
        if room.fits
        else f"First check that GPU memory is large enough during a rollout: {room.text}."
    )
    on = switched_on(view)
    if not on and view.now("vllm.sleep_level"):
        return view.setting("vllm.sleep_level", 0, change, safety="same-math", risk=risk)
    if not on:
        text = "switch off the offload of weights and optimizer state around a rollout"
        return view.advice(text, change, safety="same-math", risk=risk)
    return view.settings([(name, False) for name in on], change, safety="same-math", risk=risk)
