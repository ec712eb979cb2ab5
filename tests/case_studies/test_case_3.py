"""Out of memory under ZeRO-2, slow under ZeRO-3: what the rules say of each."""

from __future__ import annotations

from tests.case_studies.case_3 import command
from tests.case_studies.traced import Cards, judged, note, ran_out, spellings, traced
from tests.unit.findings.example_runs import HEALTHY

A30_GIB = 23.6
FULL = Cards(8, A30_GIB, 18.0, 23.2)
# Under ZeRO-3 each card holds an eighth of 7.6 billion weights, and activations.
SPREAD = Cards(8, A30_GIB, 12.0, 14.0)
SLOW = {**HEALTHY, "rollout": 60.0, "train": 20.0}


def test_memory_that_ran_out_in_training_under_zero_2_leads_to_zero_3() -> None:
    results = judged(ran_out(traced(command("zero2"), FULL), "train"))
    finding = next(f for rule, f in results.findings if rule.id == "GD040")
    assert finding.severity == "high"
    assert finding.headline == "Memory ran out in train"
    fixes = spellings(results, "GD040")
    # The cheapest first: half the micro-batch before more collectives.
    assert fixes[0] == "--per_device_train_batch_size 1 --gradient_accumulation_steps 4"
    assert "--deepspeed zero3" in fixes


def test_zero_3_is_told_to_be_needed_with_the_bytes_that_are_lacking() -> None:
    results = judged(traced(command("zero3"), SPREAD, SLOW))
    assert "GD039" not in [rule.id for rule, _ in results.findings]
    text = note(results, "GD039")
    assert "ZeRO-3 is needed" in text
    assert f"{7.6e9 * 2 * 7 / 8 / 2**30:.2f} GiB more" in text


def test_what_makes_it_slow_is_the_rollout_through_spread_weights() -> None:
    results = judged(traced(command("zero3"), SPREAD, SLOW))
    finding = next(f for rule, f in results.findings if rule.id == "GD003")
    assert finding.severity == "high"
    assert "--use_vllm true" in finding.fixes[0].spelling
