"""The whole model is sent to the engine though only adapters were trained."""

from __future__ import annotations

from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, NotApplicable, Passed
from grpo_doctor.findings.shared import percent
from grpo_doctor.findings.view import RunView, timed_rule
from grpo_doctor.whatif import Settings

RULE = timed_rule("sync", signals.SETTINGS)
# Adapter kernels slow decoding by a tenth and more: a sync below a twentieth of the step would be
# changed for a loss.
MIN_SHARE = 0.05
_KNOB, _SLEEP = "vllm.enable_lora", "vllm.sleep_level"


def check(view: RunView) -> Answer:
    """Look at the settings, then at what the sync takes."""
    if view.knob("train.type") != "lora" or view.now("vllm.use") is False:
        return NotApplicable("no adapters are trained for a separate rollout engine")
    if view.now(_KNOB) is True:
        return NotApplicable("only adapters are sent")
    share = view.share("sync")
    if share < MIN_SHARE:
        return Passed(f"sending the weights takes {percent(share, 1)} of the step")
    return Finding(
        confidence=0.8,
        cost=share,
        phases=("sync",),
        evidence=(
            *view.phase_evidence("sync"),
            Evidence("what is trained", "lora", "", "settings"),
            *(
                Evidence(f"of it {name}, per step", seconds, "s", f"sync/{name} spans")
                for name in ("gather", "load", "send")
                if (seconds := view.span_seconds(f"sync/{name}"))
            ),
        ),
        cause=f"Each step spends {view.seconds('sync'):.3g} s of {view.step_s:.3g} s on sending "
        f"merged weights although only the adapters changed.",
        fixes=(_fix(view),),
    )


def _fix(view: RunView) -> Fix:
    change = Settings(((_KNOB, True),))
    risk = "Decoding with adapters is up to a third slower: compare the whole step."
    if view.now("vllm.mode") == "server":
        text = "start the server with adapters enabled and send it only the adapters"
        return view.advice(text, change, risk=risk)
    light = [(_SLEEP, 1)] if view.now(_SLEEP) == 2 and view.spell(_SLEEP, 1) else []
    return view.settings([(_KNOB, True), *light], change, risk=risk)
