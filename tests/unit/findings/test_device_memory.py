"""Whether something fits beside what the devices held, and what the recording says of a model."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.findings import RunView
from grpo_doctor.findings.device_memory import (
    DEVICE_MEMORY,
    gib,
    model_size,
    on_cpu,
    room_for,
    weight_bytes,
)
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import GIB, run


def on_host(free_gib: list[float], *, ranks: int = 1, device: str = "cpu") -> TraceBuilder:
    """Ranks without GPUs on a host that had so much memory left."""
    build = TraceBuilder(ranks=ranks, config={"device": device})
    for number in range(4):
        for rank in range(ranks):
            build.step(rank, number, 10.0 * number, {"train": 10.0})
    if free_gib:
        times, values = [10.0 * n for n in range(len(free_gib))], [GIB * free for free in free_gib]
        build.series("host.memory_available", "bytes", times, values)
    return build


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (GIB, "1.00"),
        (GIB - 1, "1"),
        (GIB // 2, "0.5"),
        (1.5 * GIB, "1.50"),
        (GIB / 1024, "0.00098"),
    ],
)
def test_a_size_below_one_has_the_digits_that_say_something(count: float, text: str) -> None:
    assert gib(count) == text


@pytest.mark.parametrize(
    ("build", "is_so"),
    [
        (on_host([]), True),
        (on_host([], device="cuda"), False),
        (on_host([]).gpu("GPU-0"), False),
        (on_host([], device="cuda").gpu("GPU-0"), False),
    ],
)
def test_a_model_is_in_host_memory_where_no_gpu_was_seen_and_the_job_says_so(
    build: TraceBuilder, is_so: bool
) -> None:
    assert on_cpu(analyse(build.build())) is is_so


@pytest.mark.parametrize(
    ("build", "known"),
    [
        (on_host([4.0]), True),
        (on_host([]), False),
        (on_host([4.0], device="cuda"), False),
        (run(ranks=1), True),
        (run(ranks=1, memory_gib=None), False),
    ],
)
def test_the_memory_of_a_model_is_known_where_it_lies(build: TraceBuilder, known: bool) -> None:
    assert DEVICE_MEMORY.present(analyse(build.build())) is known
    assert (room_for(RunView.of(build.build()), GIB) is not None) is known


@pytest.mark.parametrize(("ranks", "words"), [(1, "for 1 rank fits"), (2, "for 2 ranks fits")])
def test_half_of_the_least_that_was_free_on_the_host_is_the_most_that_fits(
    ranks: int, words: str
) -> None:
    view = RunView.of(on_host([32.0, 16.0, 24.0], ranks=ranks).build())
    at_most, more = room_for(view, 8 * GIB / ranks), room_for(view, 8 * GIB / ranks + 1)
    assert at_most is not None
    assert more is not None
    assert (at_most.fits, more.fits) == (True, False)
    assert f"8.00 GiB more {words} in 50% of the 16.0 GiB that were free" in at_most.text
    assert [e.value for e in at_most.evidence] == [16.0, 8.0]


def test_a_gpu_is_filled_to_nine_tenths_of_what_the_fullest_has() -> None:
    build = run(ranks=2, memory_gib=(60.0, 70.0))
    view = RunView.of(build.build())
    fits = {
        more: fit.fits
        for more in (2.0, 2.01, 12.0)
        if (fit := room_for(view, more * GIB)) is not None
    }
    assert fits == {2.0: True, 2.01: False, 12.0: False}
    in_rollout = room_for(view, 12.0 * GIB, "rollout")
    assert in_rollout is not None
    assert in_rollout.fits
    assert "12.00 GiB more on top of a peak of 60.0 GiB fits in 90% of 80.0 GiB" in in_rollout.text


@pytest.mark.parametrize(
    ("parameters", "known"), [(1, 1), (0, None), (-1, None), (True, None), ("7", None)]
)
def test_the_size_of_a_model_is_a_whole_number_above_nought(
    parameters: Any, known: int | None
) -> None:
    config = {"model_parameters": parameters, "model_num_hidden_layers": 2}
    size = model_size(RunView.of(TraceBuilder(config=config).build()))
    assert (size.parameters, size.layers, size.hidden) == (known, 2, None)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({"torch_dtype": "torch.float32"}, 4),
        ({"torch_dtype": "bf16", "device": "cpu"}, 2),
        ({"torch_dtype": "auto"}, 2),
        ({}, 2),
        ({"device": "cpu"}, 4),
    ],
)
def test_a_weight_is_as_large_as_its_type(config: dict[str, Any], count: int) -> None:
    assert weight_bytes(RunView.of(TraceBuilder(config=config).build())) == count
