"""The run over time: the mean of all ranks, then a lane for each."""

from __future__ import annotations

from typing import Any

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.buckets import (
    buckets_data,
    phases_of_buckets,
    rank_stacks,
    shares,
    step_stacks,
)
from grpo_doctor_reports.charts.chart import Chart
from grpo_doctor_reports.charts.exact import exact_data, phases_of_spans
from grpo_doctor_reports.model import Report
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.palette import color_of, ink_on, order_of
from grpo_doctor_reports.schema.timeline import Exact, ExactWindow, StepBuckets, Timeline

_NAMED = 4
_BUTTONS = 8
_HEAD_PX, _MEAN_PX, _LANE_PX, _LEAST_PX, _MOST_PX = 36, 64, 40, 60, 560  # as in lanes.js
_WORDS = {
    "open": "the step that never ended",
    "median": "the median step",
    "worst": "the worst step",
    "named": "step",
    "start": "the time before the steps",
    "end": "the time after the steps",
}


def lanes_chart(report: Report, pool: NumberPool) -> Chart | None:
    """Return the lanes, None where no rank's phases were recorded."""
    timeline, steps = report.timeline, report.step_buckets
    has_means = bool(steps.first)
    if not timeline.exact.lanes and not timeline.ranks.first:
        return None
    if not any(lane.name for lane in timeline.exact.lanes) and not has_means:
        return None
    phases, summary = _phases(steps, timeline), _summary(report)
    data: dict[str, Any] = {
        "end": timeline.end_s,
        "height": _height_px(len(lanes_shown(timeline)), has_means),
        "summary": summary,
        "windows": _buttons(timeline.exact),
        "phases": [
            {"name": phase, "color": color_of(phase), "ink": ink_on(phase)} for phase in phases
        ],
        "exact": exact_data(timeline.exact, phases, pool),
        "mean": None,
        "ranks": None,
    }
    if has_means:
        data["mean"] = {
            **buckets_data(steps, timeline.end_s, pool),
            "stacks": step_stacks(steps, phases, pool),
        }
    if timeline.ranks.first:
        data["ranks"] = {
            **buckets_data(timeline.ranks, timeline.end_s, pool),
            "ranks": pool.add_integers(timeline.ranks.ranks),
            "stacks": rank_stacks(timeline.ranks, phases, pool),
        }
    return Chart(data=data, summary=summary, note=_note(report))


def _height_px(lanes: int, has_means: bool) -> int:
    """As the script computes it (`lanesHeight`), so that nothing moves when the chart is drawn."""
    body = min(_MOST_PX, max(_LEAST_PX, _LANE_PX * lanes))
    return _HEAD_PX + (_MEAN_PX if has_means else 0) + body


def lanes_shown(timeline: Timeline) -> list[int]:
    """Return the ranks that have a lane."""
    return sorted({*timeline.ranks.ranks, *(lane.rank for lane in timeline.exact.lanes)})


def _phases(steps: StepBuckets, timeline: Timeline) -> list[str]:
    names = {*phases_of_buckets(steps, timeline.ranks), *phases_of_spans(timeline.exact)}
    return sorted(names, key=order_of)


def _summary(report: Report) -> str:
    count, shares_of_phases = shares(report.step_buckets)
    if not shares_of_phases:
        return _of_spans(report.timeline)
    lanes = len(lanes_shown(report.timeline))
    ranks = formatting.count(max(len(report.heatmap.means.ranks), lanes), "rank")
    phases = [
        f"{name} {formatting.share(share)}"
        + (f" ({formatting.share(wait)} waiting)" if wait >= 0.005 else "")
        for name, share, wait in sorted(shares_of_phases, key=lambda part: -part[1])
        if share >= 0.0005
    ]
    return f"Mean of {ranks} over {formatting.count(count, 'step')}: {', '.join(phases)}."


def _of_spans(timeline: Timeline) -> str:
    """What the outermost spans take, where no step is known."""
    phase_s: dict[str, float] = {}
    for lane in timeline.exact.lanes:
        for name, depth, start, end in zip(
            lane.name, lane.depth, lane.start_s, lane.end_s, strict=True
        ):
            if depth == 0:
                phase = timeline.exact.names[name].partition("/")[0]
                phase_s[phase] = phase_s.get(phase, 0.0) + end - start
    total_s = sum(phase_s.values()) or 1.0
    longest = sorted(phase_s.items(), key=lambda item: -item[1])[:_NAMED]
    phases = ", ".join(f"{phase} {formatting.share(s / total_s)}" for phase, s in longest)
    ranks = formatting.count(len(timeline.exact.lanes), "rank")
    return f"Recorded phases of {ranks} over {formatting.seconds(timeline.end_s)}: {phases}."


def _note(report: Report) -> str:
    timeline, steps = report.timeline, report.step_buckets
    notes = [_means_note(steps, timeline), _exact_note(timeline.exact)]
    lanes, total = lanes_shown(timeline), len(report.heatmap.means.ranks)
    silent = {rank.rank for rank in report.run.ranks} - {*lanes, *report.heatmap.means.ranks}
    if silent:
        notes.append(
            f"{'Rank' if len(silent) == 1 else 'Ranks'} {formatting.int_ranges(silent)} not drawn: "
            "no phase of theirs was recorded."
        )
    if len(lanes) < total:
        notes.append(
            f"{formatting.count(total - len(lanes), 'rank')} of {total:,} have no lane: of each "
            f"{formatting.number(total / len(lanes))} the one that works longest has. "
            "The means are over all."
        )
    return " ".join(note for note in notes if note)


def _means_note(steps: StepBuckets, timeline: Timeline) -> str:
    widest = max(timeline.ranks.steps, default=1)
    all_ranks = max(steps.steps, default=1)
    if widest <= 1:
        return ""
    mean = "" if all_ranks == widest else f", {all_ranks} for the mean of all ranks"
    return (
        f"A column of a lane is the mean of up to {widest} steps{mean}; its height is shared by "
        "the phases."
    )


def _buttons(exact: Exact) -> list[dict[str, Any]]:
    """What the reader can go to with one click."""
    chosen = [window for why in _WORDS for window in exact.windows if window.why == why]
    return [
        {"name": _name(w).removeprefix("the "), "start": w.start_s, "end": w.end_s}
        for w in chosen[:_BUTTONS]
    ]


def _name(window: ExactWindow) -> str:
    words = _WORDS[window.why]
    return words if window.step is None else f"{words} {window.step}"


def _exact_note(exact: Exact) -> str:
    notes = []
    if exact.windows and not _is_whole(exact):
        names = [_name(window) for why in _WORDS for window in exact.windows if window.why == why]
        slow = sum(window.why == "slow" for window in exact.windows)
        names += [f"the {formatting.count(slow, 'next slowest step')}"] if slow else []
        notes.append(f"Drawn span by span: {'; '.join(names)}.")
    if exact.spans_left_out:
        count, longest = formatting.count(exact.spans_left_out, "span"), exact.longest_left_out_s
        notes.append(f"{count} of at most {formatting.seconds(longest)} are not drawn.")
    return " ".join(notes)


def _is_whole(exact: Exact) -> bool:
    return any(window.why == "whole" for window in exact.windows)
