"""Swimlanes, flow and words of trajectories; names in them are a stranger's."""

from __future__ import annotations

import re

import msgspec

from grpo_doctor_reports import render_html, render_text
from grpo_doctor_reports.charts.trajectories import trajectories_chart
from grpo_doctor_reports.markdown import render_markdown
from grpo_doctor_reports.schema.trajectories import (
    Flow,
    PartShown,
    Shown,
    Spread,
    Syncs,
    ToolEntry,
    Trajectories,
)
from grpo_doctor_reports.trajectory_words import sentences
from tests.unit.reports.charts.built import report

HOSTILE = "<script>alert(1)</script>\x1b[31m" + "x" * 10_000


def one(seconds: float, why: str = "slowest", **numbers: float) -> Shown:
    parts = [
        PartShown(state="generate", start_s=0.0, end_s=seconds / 2),
        PartShown(state="tool", start_s=seconds / 2, end_s=seconds, name=HOSTILE, failed=True),
        PartShown(state="buffer", start_s=seconds, end_s=seconds + 1),
    ]
    states = {"generate": seconds / 2, "tool": seconds / 2, "buffer": seconds + 1}
    return Shown(
        why=why, outcome="trained", seconds=seconds, states=states, numbers=numbers, parts=parts
    )


def all_of(count: int = 60) -> Trajectories:
    return Trajectories(
        count=count,
        outcomes={"trained": count - 1, "open": 1},
        seconds=Spread(total=90.0, p50=1.0, p90=2.0, p99=3.0),
        states={"generate": Spread(total=30.0), "tool": Spread(total=10.0)},
        tools=[ToolEntry(name=HOSTILE, calls=12, errors=2, time_outs=1, p50_s=0.5, p99_s=8.0)],
        flow=Flow(steps=[1, 2], produced=[8, 8], trained=[0, 8], dropped=[0, 0], waiting=[8, 8]),
        syncs=Syncs(seconds=10.0, waiting_s=7.5, transfer_s=2.0),
        shown=[one(1.0 + n, group=float(n), sample=1.0) for n in range(count)][::-1],
    )


def test_each_of_the_slowest_has_a_lane_and_a_label() -> None:
    chart = trajectories_chart(all_of())
    assert chart is not None
    assert set(chart.figures) == {"lanes", "flow"}
    labels = chart.figures["lanes"]["layout"]["yaxis"]["ticktext"]
    assert (len(labels), labels[0]) == (50, "59/1 ")
    assert "The 50 slowest of 60 trajectories" in chart.summary
    assert "ready after 60 s, of which 30 s in generate" in chart.summary


def test_a_trajectory_of_which_nothing_is_known_is_drawn_too() -> None:
    bare = Trajectories(count=1, shown=[Shown(why="slowest", outcome="open")])
    chart = trajectories_chart(bare)
    assert chart is not None
    assert set(chart.figures) == {"lanes"}
    assert trajectories_chart(Trajectories(count=3)) is None


def test_the_numbers_in_words() -> None:
    first, tool, syncs = sentences(all_of())
    assert first == (
        "60 trajectories (59 trained, 1 open): median 1 s, p99 3 s until ready; most time: "
        "generate 75%, tool 25%."
    )
    assert tool.endswith("12 calls, median 500 ms, p99 8 s, 2 failed, 1 timed out.")
    assert syncs == "Weight syncs: waiting for rollouts in flight 75%, transfer 20% of 10 s."
    assert sentences(None) == []


def test_hostile_names_are_text_on_page_terminal_and_in_markdown() -> None:
    document = msgspec.to_builtins(msgspec.structs.replace(report(), trajectories=all_of()))
    page = render_html(document)
    assert 'id="trajectories"' in page
    assert "<script>alert" not in page
    assert len(re.findall("x{300}", page)) == 0
    for text in (render_text(document, width=100, color=False), render_markdown(document)):
        assert "60 trajectories" in text
        assert "\x1b" not in text
        assert len(text) < 20_000
