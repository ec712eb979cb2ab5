"""The truth of the memory ledger: made by fake tensors, stored, and compared term by term."""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest

from benchmarks import memory_truth
from benchmarks.memory_truth import TINY, Point, errors, stored

ACCURACY = Path(memory_truth.__file__).parent / "results" / "accuracy.md"
STATES = ("gradients", "optimizer states", "optimizer scratch", "trained weights")
TINY_STEP = Point(TINY, layers=2, prompt=64, completion=448, micro_batch=2)
STEPS = {
    "full": TINY_STEP,
    "LoRA": Point(TINY, 2, "lora", micro_batch=2, prompt=64, completion=448),
    "bundled": Point(
        TINY, 2, micro_batch=2, prompt=64, completion=448, recompute="none", loss="bundled"
    ),
}


def test_what_is_stored_covers_families_methods_and_divisions() -> None:
    points = [point for point, _ in stored()]
    assert len(set(points)) == len(points) >= 60
    assert {point.family for point in points} == set(memory_truth.FAMILIES.values())
    assert {point.held_out for point in points} == {"", "family", "method"}
    assert {point.ranks > 1 for point in points} == {True, False}


@pytest.mark.parametrize("term", STATES)
def test_states_are_exact_on_what_is_known(term: str) -> None:
    known = [off for off, *_ in errors()[term]]
    assert max(map(abs, known)) < 0.01


def test_the_ledger_is_no_further_off_than_the_document_says() -> None:
    said = dict(
        re.findall(r"^\| ([^|]+) \| \d+ \| ([\d.]+)% / ", ACCURACY.read_text(), re.MULTILINE)
    )
    for name, found in errors().items():
        known = [abs(off) for off, point, _ in found if not point.held_out]
        assert 100 * statistics.median(known) <= float(said[name]) + 0.1, name


@pytest.mark.parametrize("step", STEPS)
def test_a_fake_step_takes_what_the_allocator_gives_a_real_one(step: str) -> None:
    """Counted by PyTorch's profiler, which sees what kernels take for a moment too."""
    pytest.importorskip("trl")
    pytest.importorskip("peft")
    torch = pytest.importorskip("torch")
    from benchmarks.memory_fake import measure

    fake = measure(STEPS[step])
    with torch.profiler.profile(profile_memory=True) as profiler:
        real = measure(STEPS[step], fake=False)
    changes = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        most = max(most, held)
    assert {name: real[name] for name in real} == pytest.approx(fake, rel=0.001, abs=1024)
    assert most == pytest.approx(fake["peak"], rel=0.02)


def test_fsdp_divides_all_states_of_a_fake_step() -> None:
    pytest.importorskip("trl")
    pytest.importorskip("peft")
    from dataclasses import replace

    from benchmarks.memory_fake import measure

    whole, quarter = measure(TINY_STEP), measure(replace(TINY_STEP, ranks=4))
    for term in ("trained weights", "gradients", "optimizer states"):
        assert quarter[term] == pytest.approx(whole[term] / 4, rel=0.02)
    assert whole["unsharded"] == 0 < quarter["unsharded"]
