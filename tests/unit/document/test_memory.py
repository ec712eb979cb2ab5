"""The memory part of the document: what was predicted of the first step, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document import build_document
from grpo_doctor.document.memory import memory_entry
from grpo_doctor.trace.model import Origin, Trace
from grpo_doctor_reports.schema.report import MemoryCompared
from grpo_doctor_reports.terminal import memory_sentences, render_text
from tests.build import TraceBuilder

GIB = 1 << 30
KNOBS: Mapping[str, Any] = {
    "model.name": "Qwen/Qwen2.5-7B-Instruct", "train.type": "lora", "deepspeed.stage": 2,
    "deepspeed.preset": "zero2", "train.micro_batch": 2, "data.max_length": 1024,
    "rollout.max_completion_length": 1024, "vllm.use": True, "vllm.mode": "server",
}  # fmt: skip
LAYERS = "model_num_hidden_layers"
SIZES: Mapping[str, Any] = {
    "model_hidden_size": 128, "model_intermediate_size": 256, "model_vocab_size": 261, LAYERS: 1,
    "model_parameters": 214_912,
}  # fmt: skip
PHASES = {"rollout": 1.0, "train": 1.0, "optimizer": 1.0}


def recorded(
    loaded: float = 17.0, trained: float = 30.0, *, gpu: bool = True, **more: Any
) -> TraceBuilder:
    build = TraceBuilder(
        ranks=2,
        framework=more.pop("framework", "ms-swift"),
        framework_version="4.6.0",
        knobs={k: v for k, v in {**KNOBS, **more.pop("knobs", {})}.items() if v is not None},
        config=more,
    )
    for rank in (0, 1):
        for number in range(3):
            build.step(rank, number, 10.0 + 3 * number, PHASES)
        values = [float(GIB * size) for size in (1.0, loaded, trained + rank, trained + rank)]
        if gpu:
            build.gpu(f"GPU-{rank}", index=rank)
            build.series("gpu.memory_used", "bytes", (0, 5, 11.5, 20), values, scope="gpu",
                         gpu=f"GPU-{rank}")  # fmt: skip
        else:
            build.series("rank.rss", "bytes", (0, 5, 11.5, 20), values, scope="rank", rank=rank)
    return build


def as_full(gib: float) -> TraceBuilder:
    """Both ranks' cards are as full all the time."""
    build = recorded()
    for rank in (0, 1):
        build.series("gpu.memory_used", "bytes", (0, 5, 11.5, 20), [gib * GIB] * 4, scope="gpu",
                     gpu=f"GPU-{rank}")  # fmt: skip
    return build


def compared(trace: Trace) -> MemoryCompared:
    return memory_entry(analyse(trace))


def test_the_most_used_card_is_compared() -> None:
    memory = compared(recorded().build())
    assert (memory.reason, memory.rank) == ("", 1)
    assert memory.capacity_bytes == 80 * GIB
    assert memory.measured_bytes == 31 * GIB


def test_advice_is_corrected_by_what_was_measured() -> None:
    def largest(trained: float) -> int:
        (advice,) = (
            a for a in compared(recorded(trained=trained).build()).advice
            if a.knob == "train.micro_batch"
        )  # fmt: skip
        assert advice.fits
        return int(advice.spelling.split()[-1])

    assert largest(17.0) > largest(19.5) > 2


@pytest.mark.parametrize("trained", [0.5, 15.0, 30.0, 60.0, 79.0])
def test_nothing_is_built_on_a_prediction_that_was_wrong(trained: float) -> None:
    memory = compared(recorded(1.0, trained).build())
    inside = (memory.low_bytes or 0) <= (memory.measured_bytes or 0) <= (memory.high_bytes or 0)
    assert not inside
    assert (memory.advice, memory.longest_bytes, memory.longest_row_tokens) == ([], None, None)
    (sentence,) = memory_sentences(memory)
    assert "the prediction is wrong for this run" in sentence


@pytest.mark.parametrize("unsaid", ["data.max_length", "rollout.max_completion_length"])
def test_a_longest_row_that_is_assumed_is_not_asserted(unsaid: str) -> None:
    memory = compared(recorded(trained=18.0, knobs={unsaid: None}).build())
    assert (memory.advice, memory.longest_row_tokens) == ([], None)
    assert "wrong" not in " ".join(memory_sentences(memory))


def test_what_no_longer_fits_is_said_though_the_ledger_alone_would_let_it() -> None:
    offloaded = {"deepspeed.offload_optimizer": True, "deepspeed.preset": "zero2_offload"}
    memory = compared(recorded(trained=72.0, knobs={**offloaded, "train.micro_batch": 27}).build())
    fits = {a.knob: (a.fits, a.fits_by_ledger) for a in memory.advice}
    assert fits["deepspeed.offload_optimizer"] == (False, True)


def test_rows_of_the_first_step_are_told_from_the_longest_allowed() -> None:
    build = recorded(trained=16.5)
    for rank in (0, 1):
        build.series("train/token_places", "", (11.2, 11.6), (300.0, 400.0), scope="counter",
                     rank=rank)  # fmt: skip
    memory = compared(build.build())
    assert (memory.row_tokens, memory.longest_row_tokens) == (200, 2048)
    assert (memory.longest_bytes or 0) > (memory.measured_bytes or 0)
    assert (memory.predicted_bytes or 0) < (compared(recorded().build()).predicted_bytes or 0)


def places(build: TraceBuilder, rank: int, *values: float) -> TraceBuilder:
    times = (11.2, 11.6)[: len(values)] or (50.0,)
    return build.series("train/token_places", "", times, values or (900.0,), scope="counter",
                        rank=rank)  # fmt: skip


def test_rows_are_those_of_the_most_used_rank_and_of_the_first_step() -> None:
    two_ranks = places(places(recorded(), 0, 800.0, 700.0), 1, 400.0)
    assert compared(two_ranks.build()).row_tokens == 200
    assert compared(places(recorded(), 0, 800.0, 700.0).build()).row_tokens is None
    assert compared(places(recorded(), 1).build()).row_tokens is None
    assert compared(places(recorded(), 1, 1.0).build()).row_tokens == 1


def test_of_ranks_that_are_as_full_the_first_is_compared() -> None:
    assert compared(as_full(60.0).build()).rank == 0


def test_a_phase_that_begins_with_the_step_is_one_of_it() -> None:
    colocated = compared(recorded(70.0, 71.0, knobs={"vllm.mode": "colocate"}).build())
    # A colocated engine takes a share of the card that was recorded.
    assert 0.8 * 80 * GIB < (colocated.predicted_bytes or 0) < 1.2 * 80 * GIB


def test_settings_are_divided_by_the_ranks_that_the_job_had() -> None:
    trace = recorded().build()

    def predicted(world_size: int) -> int:
        run = replace(trace.run, world_size=world_size)
        return compared(replace(trace, run=run)).predicted_bytes or 0

    assert predicted(0) == predicted(2) > predicted(4)


@pytest.mark.parametrize(("trained", "fits"), [(71.0, True), (71.001, False)])
def test_nine_tenths_of_a_card_may_be_used(trained: float, fits: bool) -> None:
    # Where a server rolls out, weights on the host are none that would come back.
    settings = {"offload.model": True, "train.micro_batch": 32}
    memory = compared(recorded(trained=trained, knobs=settings).build())
    (advice,) = (a for a in memory.advice if a.knob == "offload.model")
    assert advice.bytes == memory.measured_bytes
    assert advice.fits is fits


@pytest.mark.parametrize("said", [{"device": "cpu"}, {"use_cpu": True}])
def test_host_memory_of_a_run_on_cpus_is_not_modelled(said: dict[str, Any]) -> None:
    memory = compared(recorded(gpu=False, **said).build())
    assert memory == MemoryCompared(reason="not modeled: host memory of CPU runs")
    assert memory_sentences(memory) == ["Memory: not modeled: host memory of CPU runs."]


def test_a_model_without_a_config_is_known_by_the_sizes_that_were_recorded() -> None:
    memory = compared(recorded(knobs={"model.name": "own/model"}, **SIZES).build())
    assert memory.reason == ""


@pytest.mark.parametrize(("trace", "reason"), [
    (TraceBuilder(knobs=KNOBS).build(), "no step"),
    (recorded(gpu=False, device="cuda").build(), "no GPU's memory"),
    (recorded(knobs={"model.name": "nobody/knows-it"}).build(), "of nobody/knows-it is not known"),
    (recorded(knobs={"model.name": ""}).build(), "the shape of the model is not known"),
    (recorded(knobs={"model.name": "x"}, **{**SIZES, LAYERS: 0}).build(), "of x is not known"),
    (recorded(knobs={"model.name": "x"}, **{**SIZES, LAYERS: "1"}).build(), "is not known"),
    (as_full(0.0).build(), "no memory was sampled in the first step"),
    (recorded(framework="areal").build(), "areal are not known"),
])  # fmt: skip
def test_where_there_is_nothing_to_compare_it_says_why(trace: Trace, reason: str) -> None:
    memory = compared(trace)
    assert reason in memory.reason
    assert memory.measured_bytes is None


def test_imported_logs_have_no_memory() -> None:
    trace = recorded().build()
    origin = Origin("a console log", (), durations_only=True)
    assert "a console log" in compared(replace(trace, run=replace(trace.run, origin=origin))).reason


def test_the_terminal_says_it_in_a_line() -> None:
    document = build_document(recorded(trained=19.0).build())
    text = " ".join(render_text(document, width=120, color=False).split())
    assert "Memory, first step: rank 1 peaked at 20 GiB of 80 GiB" in text
    assert "Measured usage leaves room for one of" in text
