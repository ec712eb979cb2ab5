"""What the rules say of memory left or lacking; whether it would fit is another command's."""

from __future__ import annotations

import pytest

from tests.case_studies.case_2 import COMMAND, HANDED_OVER
from tests.case_studies.traced import Cards, judged, note, ran_out, spellings, traced
from tests.unit.findings.example_runs import HEALTHY

TWO_A800 = Cards(2, 79.3, 70.0, 66.0)
OFFLOADING = {**HEALTHY, "offload": 2.0}


def on_two(memory_gib: float, held_gib: float) -> Cards:
    return Cards(2, memory_gib, held_gib, held_gib)


def test_on_two_a800_the_job_fits_and_nothing_is_left_over() -> None:
    results = judged(traced(COMMAND, TWO_A800))
    ids = [rule.id for rule, _ in results.findings]
    assert "GD006" not in ids
    assert "GD040" not in ids
    assert "88%" in note(results, "GD006")
    assert "no retries" in note(results, "GD040")


def test_offload_that_is_needed_there_is_not_advised_against() -> None:
    build = traced(COMMAND, TWO_A800, OFFLOADING)
    times = [10.0 * n for n in range(6)]
    for rank in range(2):
        build.series("offload/bytes", "", times, [15.4 * 2**30] * 6, scope="counter", rank=rank)
    assert "does not fit in" in note(judged(build), "GD001")


@pytest.mark.parametrize("card", [47.5, 23.6], ids=["A6000", "A30"])
def test_a_launch_that_ran_out_on_a_smaller_card_gets_its_share_for_vllm_lowered(
    card: float,
) -> None:
    results = judged(ran_out(traced(COMMAND, on_two(card, card)), "rollout"))
    finding = next(f for rule, f in results.findings if rule.id == "GD040")
    assert finding.severity == "high"
    assert finding.headline == "Memory ran out in rollout"
    assert spellings(results, "GD040")[0] == "--vllm_gpu_memory_utilization 0.5"


def test_what_is_handed_over_is_said() -> None:
    assert "before it starts" in HANDED_OVER
