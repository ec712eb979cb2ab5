"""The document of any recording: valid, finite, small, and saying what happened."""

from __future__ import annotations

import dataclasses
import json
import random
import time
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from grpo_doctor.document import ReportDocument, build_document
from grpo_doctor.findings.rules import ALL
from grpo_doctor.trace.columns import in_order, spans_from
from grpo_doctor.trace.model import Exit, Kind, Loss, Trace
from grpo_doctor_reports.schema.report import LossEntry, OpenSpan
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import offloaded, run, without_vllm


def build(trace: Trace) -> ReportDocument:
    """The document, after checking that it is valid JSON of the schema."""
    document = build_document(trace)
    text = json.dumps(msgspec.to_builtins(document), allow_nan=False)
    assert msgspec.json.decode(text, type=ReportDocument) == document
    rules = [
        entry.id
        for part in (
            document.findings,
            document.passed,
            document.not_run,
            document.not_applicable,
            document.rule_errors,
        )
        for entry in part
    ]
    assert sorted(rules) == [rule.RULE.id for rule in ALL]
    return document


def died() -> TraceBuilder:
    """Rank 2 hangs in a rollout of step 3; the others wait for it in training."""
    trace = TraceBuilder(ranks=4, exit=Exit("killed", None, "SIGKILL"))
    for number in range(3):
        for rank in range(4):
            trace.step(rank, number, 10.0 * number, {"rollout": 6.0, "train": 4.0})
    for rank in range(4):
        name = "rollout" if rank == 2 else "train"
        trace.open(rank, name, 36.0, 70.0)
        if rank == 2:
            trace.open(rank, "rollout/generate", 36.5, 70.0)
        trace.row(Kind.STEP, rank, "step", 30.0, 70.0, depth=0, value=3, open=True)
    return trace


def foreign() -> TraceBuilder:
    """A command without phases: samples only."""
    trace = TraceBuilder(ranks=0, hosts=["a"], framework="unknown", framework_version=None)
    return trace.series("host.cpu", "%", [0, 1, 2], [10, float("nan"), 30])


def unmarked() -> TraceBuilder:
    """Steps, but no phase in them."""
    trace = TraceBuilder()
    for number in range(5):
        trace.row(Kind.STEP, 0, "step", 10.0 * number, 10.0 * number + 9, depth=0, value=number)
    return trace


def lossy() -> TraceBuilder:
    """Ranks 1 and 3 left nothing; a clock is unknown; metrics have holes."""
    loss = Loss(dropped_events=7, missing_ranks=(1, 3), truncated=True, notes=("cut off",))
    trace = TraceBuilder(ranks=1, loss=loss, exit=Exit("failed", 1))
    trace.metrics(0, reward=float("nan"), loss=0.5).metrics(1, reward=0.25, bad=float("inf"))
    return trace.step(0, 0, 0.0, {"init": 1.0})


RECORDINGS: dict[str, Callable[[], TraceBuilder]] = {
    "nothing": lambda: TraceBuilder(ranks=0),
    "one step": lambda: TraceBuilder().step(0, 1, 0.0, {"train": 1.0}), "died": died,
    "foreign": foreign, "unmarked": unmarked, "lossy": lossy, "healthy": run,
    "offloaded": offloaded,
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDINGS)
def test_any_recording_gives_a_valid_document(name: str) -> None:
    build(RECORDINGS[name]().build())


@pytest.mark.parametrize("seed", range(25))
def test_rows_without_sense_give_a_valid_document_too(seed: int) -> None:
    rng = random.Random(seed)
    ranks = rng.randint(1, 4)
    trace = TraceBuilder(ranks=ranks, knobs={"offload.model": True, "vllm.use": False})
    for _ in range(60):
        start = rng.random() * 20
        trace.row(
            rng.choice(list(Kind)), rng.randrange(ranks),
            rng.choice(["rollout", "train", "offload", "dataload", "mine", "reward/mine"]), start,
            start + rng.choice([0, rng.random() * 10]),
            value=rng.choice([0, 1, 2, 3, 4, -1, float("nan")]), thread=rng.randint(0, 1),
            open=rng.random() < 0.1,
        )  # fmt: skip
    trace.gpu("g").series("gpu.memory_used", "bytes", [0, 5], [1e9, 3e9], scope="gpu", gpu="g")
    document = build(trace.build())
    assert document.rule_errors == []


def test_the_verdict_of_a_run_that_died_says_which_rank_was_where() -> None:
    document = build(died().build())
    assert document.summary.verdict.startswith(
        "The run was killed (SIGKILL) in step 3: rank 2 in rollout/generate (33.5 s), "
        "ranks 0, 1, 3 in train (34 s)."
    )
    states = {entry.rank: entry.state for entry in document.run.ranks}
    assert states == {0: "open", 1: "open", 2: "open", 3: "open"}
    (second,) = [entry for entry in document.run.ranks if entry.rank == 2]
    assert second.open == [
        OpenSpan(name="rollout", open_s=34.0),
        OpenSpan(name="rollout/generate", open_s=33.5),
    ]


def test_a_finding_that_nobody_can_act_on_is_not_the_verdict() -> None:
    trace = without_vllm(memory_gib=None).build()  # no GPU
    document = build(trace)
    assert [f.severity for f in document.findings] == ["info"]
    assert "Not enough data: only 10 of 43 checks" in document.summary.verdict


def test_what_was_lost_is_said() -> None:
    document = build(lossy().build())
    assert document.run.loss == LossEntry(
        dropped_events=7, missing_ranks=[1, 3], truncated=True, notes=["cut off"]
    )
    assert [rank.state for rank in document.run.ranks] == ["finished", "missing", "missing"]
    assert msgspec.to_builtins(document.views.metrics) == {
        "steps": [0, 1],
        "series": {"loss": [0.5, None], "reward": [None, 0.25]},
        "steps_without_number": {"bad": 1, "reward": 1},
    }


def test_tokens_per_second_of_all_ranks() -> None:
    trace = TraceBuilder(ranks=2)
    for rank in (0, 1):
        for number in range(4):
            trace.step(rank, number, 10.0 * number, {"rollout": 8.0, "train": 2.0})
        at = [10.0 * n + 8 for n in range(4)]
        trace.series("rollout/tokens", "", at, [500.0] * 4, scope="counter", rank=rank)
    assert build(trace.build()).summary.tokens_per_s == 100.0


def large(spans: int, ranks: int) -> Trace:
    """Many steps of 100 phases and collectives each, built as columns."""
    steps = spans // (ranks * 101)
    rng = np.random.default_rng(7)
    names = ("step", "dataload", "rollout", "reward", "logprob", "train", "optimizer", "gather")
    slot, length = 100_000_000, 10_000_000_000
    begin = np.arange(steps, dtype=np.int64) * length
    blocks = []
    for rank in range(ranks):
        start = (begin[:, None] + np.arange(100) * slot).ravel()
        phase = np.tile(np.where(np.arange(100) % 2, 7, 1 + np.arange(100) // 2 % 6), steps)
        call = phase == 7
        start = start - np.where(call, slot - rng.integers(10, slot // 2, len(start)), 0)
        end = start + np.where(call, slot // 3, slot * 2 - 1000)
        rows = len(start) + steps
        blocks.append(
            {
                "kind": np.r_[np.full(steps, Kind.STEP), np.where(call, 5, 1)],
                "process": np.full(rows, rank),
                "thread": np.zeros(rows),
                "depth": np.r_[np.zeros(steps), np.where(call, 2, 1)],
                "name": np.r_[np.zeros(steps), phase],
                "args": np.r_[np.full(steps, -1), np.where(call, 0, -1)],
                "start_ns": np.r_[begin, start],
                "end_ns": np.r_[begin + length - 1000, end],
                "value": np.r_[np.arange(steps), np.arange(len(start))].astype(np.float64),
                "open": np.zeros(rows, dtype=np.bool_),
            }
        )
    table = {key: np.concatenate([block[key] for block in blocks]) for key in blocks[0]}
    small = TraceBuilder(ranks=ranks, framework="ms-swift", framework_version="4.6.0")
    ticks = np.arange(0, steps * 10, 0.1).tolist()
    for rank in range(ranks):
        small.gpu(f"g{rank}", index=rank)
        small.series("gpu.util", "%", ticks, [50.0] * len(ticks), scope="gpu", gpu=f"g{rank}")
    return dataclasses.replace(
        small.build(), spans=in_order(spans_from(table)), names=names, args=({"group": "world"},),
    )  # fmt: skip


def test_views_of_a_long_run_stay_small() -> None:
    document = build(large(260_000, ranks=2))
    timeline = document.views.timeline
    assert {lane.rank for lane in timeline.exact.lanes} == {0, 1}
    assert all(len(track.t_s) <= 500 for track in timeline.tracks)
    heatmap = document.views.heatmap
    assert len(heatmap.steps) == 1000
    assert len(msgspec.json.encode(document)) < 2_000_000


@pytest.mark.heavy
@pytest.mark.slow
def test_a_million_spans_take_seconds() -> None:
    trace = large(1_000_000, ranks=8)
    started = time.process_time()
    build_document(trace)
    # About 2 s on one core of 2024; time on the processor, whatever else runs.
    assert time.process_time() - started < 12


def test_a_rule_that_fails_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = next(rule for rule in ALL if rule.RULE.id == "GD005")

    def broken(view: object) -> None:
        raise ValueError("boom")

    monkeypatch.setattr(rule, "check", broken)
    document = build(run().build())
    (entry,) = document.rule_errors
    assert (entry.id, entry.exception, entry.message) == ("GD005", "ValueError", "boom")
    groups = (document.findings, document.passed, document.not_run)
    assert "GD005" not in {check.id for part in groups for check in part}
