"""The fix "switch offload off", which more than one rule gives."""

from __future__ import annotations

from grpo_doctor.findings.headroom import Headroom
from grpo_doctor.findings.rule import Fix
from grpo_doctor.findings.view import RunView
from grpo_doctor.whatif import without

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
    spelling = " ".join(fix.spelling for fix in fixes)
    return Fix(on[0], True, False, spelling, fixes[0].predicted, "same-math", fixes[0].risk)
