"""Whether GPU memory has room for what is kept on the host."""

from __future__ import annotations

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.whatif.room import Room, room_for_offloaded
from tests.unit.findings.example_runs import offloaded, run


def room(memory_gib: tuple[float, float] | None) -> Room:
    return room_for_offloaded(analyse(offloaded(memory_gib=memory_gib).build()))


@pytest.mark.parametrize(("rollout_gib", "fits"), [(40.0, True), (52.0, True), (52.1, False)])
def test_nine_tenths_of_the_most_used_gpu_may_be_used(rollout_gib: float, fits: bool) -> None:
    verdict = room((rollout_gib, 20.0))
    assert verdict.fits is fits
    assert verdict.evidence[1].value == rollout_gib
    verb = "fits in" if fits else "does not fit in"
    assert f"plus 20.00 GiB offloaded {verb} 90% of 80.0 GiB" in verdict.text


def test_what_was_not_recorded_is_named() -> None:
    unsampled = room(None)
    assert unsampled.fits is None
    assert unsampled.text.startswith("no GPU memory was sampled, so it is unknown whether the 20.0")
    assert room_for_offloaded(analyse(run(memory_gib=None).build())).text == (
        "no GPU memory was sampled"
    )
    unmoved = room_for_offloaded(analyse(run(memory_gib=(40.0, 20.0)).build()))
    assert (unmoved.fits, unmoved.text) == (None, "how many bytes are offloaded was not recorded")
