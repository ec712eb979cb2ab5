"""OpenTelemetry lines: one trace a step over all ranks, parents, times, names."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from grpo_doctor.trace.otlp import otlp_lines
from tests.build import TraceBuilder

STARTED_NS = 1_795_000_000_000_000_000


def exported(build: TraceBuilder) -> list[dict[str, Any]]:
    trace = build.build()
    trace = replace(trace, run=replace(trace.run, started_unix_ns=STARTED_NS))
    return [json.loads(line) for line in otlp_lines(trace)]


def spans_of(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All spans, each with its resource's attributes beside its own."""
    groups = [group for line in lines for group in line.get("resourceSpans", ())]
    return [
        {**span, "said": plain(group["resource"]["attributes"]) | plain(span["attributes"])}
        for group in groups
        for span in group["scopeSpans"][0]["spans"]
    ]


def plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {each["key"]: next(iter(each["value"].values())) for each in attributes}


def two_ranks() -> TraceBuilder:
    build = TraceBuilder(ranks=3)
    build.roles[2] = "engine"
    for number in (1, 2):
        for rank in (0, 1):
            build.step(rank, number, 10.0 * number, {"rollout": 4.0, "logprob": 1.0, "train": 3.0})
            build.span(rank, "rollout/generate", 10.0 * number + 1, 10.0 * number + 3, depth=2)
        build.span(2, "rollout/generate", 10.0 * number + 1.5, 10.0 * number + 2.5, depth=0)
    return build


def test_a_step_is_one_trace_over_all_processes() -> None:
    spans = spans_of(exported(two_ranks()))
    assert len({span["spanId"] for span in spans}) == len(spans)
    first, second = (
        {span["traceId"] for span in spans if span["startTimeUnixNano"].startswith(prefix)}
        for prefix in ("179500001", "179500002")
    )
    assert len(first) == len(second) == 1
    assert first != second
    (root,) = (s for s in spans if s["traceId"] in first and "parentSpanId" not in s)
    assert (root["name"], root["said"]["grpo_doctor.rank"]) == ("rl.loop", "0")
    assert root["said"]["rl.loop.iteration"] == "1"
    assert int(root["startTimeUnixNano"]) == STARTED_NS + 10_000_000_000
    loops = [s for s in spans if s["traceId"] in first and s["name"] == "rl.loop" and s != root]
    assert [s["parentSpanId"] for s in loops] == [root["spanId"]]


def test_phases_have_the_proposals_names_and_their_parents() -> None:
    spans = spans_of(exported(two_ranks()))
    by_id = {span["spanId"]: span for span in spans}
    parents = {
        (s["name"], by_id[s["parentSpanId"]]["name"], s["said"]["grpo_doctor.role"])
        for s in spans
        if "parentSpanId" in s
    }
    assert parents == {
        ("rl.loop", "rl.loop", "trainer"),
        ("rl.sample", "rl.loop", "trainer"),
        ("grpo_doctor.rollout/generate", "rl.sample", "trainer"),
        ("grpo_doctor.logprob", "rl.loop", "trainer"),
        ("rl.train", "rl.loop", "trainer"),
        ("grpo_doctor.rollout/generate", "rl.loop", "engine"),
    }


def test_what_lies_outside_of_steps_is_in_the_runs_own_trace() -> None:
    build = two_ranks()
    build.span(0, "init", 0.0, 5.0, depth=0)
    (span,) = (s for s in spans_of(exported(build)) if s["name"] == "grpo_doctor.init")
    assert "parentSpanId" not in span
    assert len(span["traceId"]) == 32


def test_a_trace_without_steps_is_exported_too() -> None:
    build = TraceBuilder()
    build.span(0, "init", 0.0, 1.0, depth=0)
    assert [s["name"] for s in spans_of(exported(build))] == ["grpo_doctor.init"]


def test_what_begins_when_a_step_ends_is_not_within_it() -> None:
    build = TraceBuilder(ranks=2)
    build.step(0, 1, 1.0, {"train": 4.0}).span(1, "reward", 4.5, 4.9).span(1, "sync", 5.0, 6.0)
    spans = {span["name"]: span for span in spans_of(exported(build))}
    (root,) = (s for s in spans.values() if s["name"] == "rl.loop")
    assert spans["rl.reward"]["parentSpanId"] == root["spanId"]
    assert "parentSpanId" not in spans["rl.sync"]


def test_steps_of_another_process_than_the_first_are_parents_too() -> None:
    build = TraceBuilder(ranks=3).span(0, "init", 0.0, 1.0).span(0, "init", 0.0, 0.5)
    build.step(1, 1, 1.0, {"train": 4.0}).span(2, "reward", 2.0, 3.0)
    spans = {span["name"]: span for span in spans_of(exported(build))}
    parent = spans["rl.reward"]["parentSpanId"]
    assert parent == spans["rl.loop"]["spanId"]
    assert spans["rl.reward"]["traceId"] == spans["rl.loop"]["traceId"]
