"""Fixes that move memory for time: less of it used, the cheapest first, or offload switched off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from grpo_doctor.findings.device_memory import Headroom
from grpo_doctor.findings.rule import Fix
from grpo_doctor.findings.view import RunView
from grpo_doctor.whatif import Prediction, Withheld, without
from grpo_doctor.whatif.edits import Change

Settings = tuple[tuple[str, object], ...]
_VLLMS = ("rollout", "sync", "init")


def fixes_for_memory(view: RunView, where: str | None) -> list[Fix]:
    """What a run may set if memory is short in the phase `where`; empty where nothing is known."""
    return [_fix(view, settings, risk) for settings, risk in _wanted(view, where)]


def changes_for_memory(view: RunView, where: str | None) -> tuple[Change, ...]:
    """What the first setting whose cost a model knows changes."""
    outcomes = (_outcome(view, settings) for settings, _ in _wanted(view, where))
    return next((o.edits for o in outcomes if isinstance(o, Prediction)), ())


def _wanted(view: RunView, where: str | None) -> Iterator[tuple[Settings, str]]:
    share, micro = view.knob("vllm.gpu_memory_utilization"), view.knob("train.micro_batch")
    passes = view.knob("train.grad_accumulation")
    # Old versions of ms-swift have no mode: theirs is what is called colocate now.
    colocated = view.knob("vllm.use") is True and view.knob("vllm.mode") != "server"
    if colocated and share and where in _VLLMS:
        less = max(0.1, round(share - 0.1, 2))
        yield (("vllm.gpu_memory_utilization", less),), "A smaller cache for vLLM."
    if isinstance(micro, int) and isinstance(passes, int) and micro >= 2 and micro % 2 == 0:
        halves = (("train.micro_batch", micro // 2), ("train.grad_accumulation", passes * 2))
        yield halves, "The same completions per optimizer step, in more passes."
    if view.knob("train.gradient_checkpointing") is False:
        on = (("train.gradient_checkpointing", True),)
        yield on, "Computes the layers again in the backward pass."
    preset = view.knob("deepspeed.preset")
    if isinstance(preset, str) and "zero2" in preset and len(view.analysis.ranks) > 1:
        stage = (("deepspeed.preset", preset.replace("zero2", "zero3")),)
        yield stage, "Gathers the weights in every pass."
    elif colocated and view.knob("offload.optimizer") is False and where == "rollout":
        yield (("offload.optimizer", True),), "Moves optimizer state in every step."


def _outcome(view: RunView, settings: Settings) -> Prediction | Withheld:
    if not len(view.analysis.step_seconds):
        return Withheld("the run has no whole step")
    outcome = view.what_if(**{name.replace(".", "__"): value for name, value in settings})
    if isinstance(outcome, Prediction) and outcome.high > 0:
        cost = f"{outcome.mid:+.1f}% of the step by {outcome.grounds}"
        return Withheld(f"it costs time and gives memory: {cost}")
    return outcome


def _fix(view: RunView, settings: Settings, risk: str) -> Fix:
    outcome = _outcome(view, settings)
    made = [
        view.setting(name, value, outcome, safety="same-math", risk=risk)
        for name, value in settings
    ]
    safety = "changes-numerics" if len(made) > 1 else made[0].safety
    return replace(_in_one_line(made), safety=safety)


def _in_one_line(fixes: Sequence[Fix]) -> Fix:
    """The first with what all say; what goes to several places has none to be pasted at."""
    first, joined = fixes[0], " ".join(fix.spelling for fix in fixes)
    if len({fix.where for fix in fixes}) > 1:
        return replace(first, spelling=joined, typed="", where="")
    return replace(first, spelling=joined, typed=" ".join(fix.typed for fix in fixes).strip())


SWITCHES = {"offload.optimizer": "the optimizer's state", "offload.model": "weights"}


def switched_on(view: RunView) -> list[str]:
    """The knobs of this run that move something out of the way of a rollout."""
    return [name for name in SWITCHES if view.knob(name) is True]


def offload_off(view: RunView, room: Headroom) -> Fix:
    """Switches off all that is on, with the replay of a run without offload spans."""
    outcome = view.predict((without("offload"),), "without its offload spans")
    risk = (
        f"Needs the memory back: {room.text}."
        if room.fits
        else f"Check first that GPU memory suffices during a rollout: {room.text}."
    )
    on = switched_on(view)
    if not on and view.knob("vllm.sleep_level"):
        return view.setting("vllm.sleep_level", 0, outcome, safety="same-math", risk=risk)
    if not on:
        text = "switch off what moves weights or optimizer state to the host around a rollout"
        return view.advice(text, outcome, safety="same-math", risk=risk)
    fixes = [view.setting(name, False, outcome, safety="same-math", risk=risk) for name in on]
    return _in_one_line(fixes)
