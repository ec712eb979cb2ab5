"""What the treatment of case 4 has to keep; each is a sentence and whether it was kept."""

from __future__ import annotations

from dataclasses import dataclass

from tests.case_studies import case_4
from tests.case_studies.commandline import flags_in
from tests.case_studies.treatment import Treated

# What helped the user, as far as two processors without a GPU can have it.
HELPED = {"offload_model": ("false",), "offload_optimizer": ("false",)}
WORKERS = "dataloader_num_workers"


@dataclass(frozen=True)
class Promise:
    """One promise and its end."""

    text: str
    kept: bool
    measured: str


def promises(treated: Treated) -> list[Promise]:
    """In the order in which they are told."""
    return [_diagnosis(treated), _halved(treated), _predicted(treated)]


def _diagnosis(treated: Treated) -> Promise:
    advised = {
        name: value
        for fix in treated.fixes
        for name, value in flags_in(fix.spelling.split()).items()
    }
    right = all(advised.get(name) == value for name, value in HELPED.items())
    more = int(advised.get(WORKERS, ("0",))[0]) > 0
    return Promise(
        "the report advises what helped the user: offload off, more loader processes",
        right and more,
        "; ".join(fix.spelling for fix in treated.fixes) or "no fix was worth following",
    )


def _halved(treated: Treated) -> Promise:
    return Promise(
        "with the fixes as printed a step takes half the time at most",
        treated.after.step_s <= case_4.AT_MOST * treated.before.step_s,
        f"{treated.before.step_s:.2f} s -> {treated.after.step_s:.2f} s, "
        f"{treated.measured_pct:+.0f}%",
    )


def _predicted(treated: Treated) -> Promise:
    text = "what the report promised of these fixes together holds what was measured"
    promised = treated.promised
    if promised is None:
        return Promise(text, False, "the report said nothing of them together")
    return Promise(
        text,
        promised.holds(treated.measured_pct),
        f"{promised.low:+.0f} to {promised.high:+.0f}% promised, "
        f"{treated.measured_pct:+.1f}% measured",
    )
