"""The run over time: the mean of all ranks, then a lane for each.

Everywhere means of neighbouring steps are drawn, and every span in a few windows.
"""

from __future__ import annotations

from itertools import accumulate
from statistics import median
from typing import Any

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.chart import Chart
from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.palette import UNATTRIBUTED, color_of, ink_on, order_of
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.report import ReportDocument
from grpo_doctor_reports.schema.views import (
    Buckets,
    Exact,
    ExactWindow,
    RankBuckets,
    StepBuckets,
    Timeline,
)

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


def lanes_chart(report: ReportDocument, pool: NumberPool) -> Chart | None:
    """Return the lanes, None where no rank's phases were recorded."""
    timeline, steps = report.views.timeline, report.views.step_buckets
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


def _summary(report: ReportDocument) -> str:
    count, shares_of_phases = shares(report.views.step_buckets)
    if not shares_of_phases:
        return _of_spans(report.views.timeline)
    lanes = len(lanes_shown(report.views.timeline))
    ranks = formatting.count(max(len(report.views.heatmap.means.ranks), lanes), "rank")
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


def _note(report: ReportDocument) -> str:
    timeline, steps = report.views.timeline, report.views.step_buckets
    notes = [_means_note(steps, timeline), _exact_note(timeline.exact)]
    lanes, total = lanes_shown(timeline), len(report.views.heatmap.means.ranks)
    silent = {rank.rank for rank in report.run.ranks} - {*lanes, *report.views.heatmap.means.ranks}
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


def buckets_data(buckets: Buckets, end_s: float, pool: NumberPool) -> dict[str, Any]:
    """Return where in the pool the buckets' steps and times are."""
    kinds = sorted(set(buckets.kind))
    return {
        "first": pool.add_integers(buckets.first),
        "last": pool.add_integers(buckets.last),
        "steps": pool.add_integers(buckets.steps),
        "used": pool.add_integers([int(used) for used in buckets.used]),
        "kind": pool.add_integers([kinds.index(kind) for kind in buckets.kind]),
        "kinds": kinds,
        "start": pool.add_times(buckets.start_s, end_s),
        "end": pool.add_times(buckets.end_s, end_s),
    }


def step_stacks(steps: StepBuckets, phases: list[str], pool: NumberPool) -> list[dict[str, Any]]:
    """Return per phase where its seconds per bucket are, and how much of them is waiting."""
    return [
        _stack(phases.index(name), values, steps.wait_seconds.get(name), pool)
        for name, values in steps.phase_seconds.items()
    ]


def rank_stacks(ranks: RankBuckets, phases: list[str], pool: NumberPool) -> list[dict[str, Any]]:
    """Return the same with the buckets of all ranks one after another."""
    return [
        _stack(
            phases.index(name),
            [value for row in rows for value in row],
            [value for row in ranks.wait_seconds[name] for value in row]
            if name in ranks.wait_seconds
            else None,
            pool,
        )
        for name, rows in ranks.phase_seconds.items()
    ]


def phases_of_buckets(steps: StepBuckets, ranks: RankBuckets) -> list[str]:
    """Return the phases of both, in the order in which they are stacked."""
    return sorted({*steps.phase_seconds, *ranks.phase_seconds, UNATTRIBUTED}, key=order_of)


def shares(steps: StepBuckets) -> tuple[int, list[tuple[str, float, float]]]:
    """Return over how many steps the means are, and of each phase its share and that of its wait.

    Steps that the summary leaves out (warm-up, for example) are left out here too, unless there
    are no others.
    """
    chosen = [at for at, used in enumerate(steps.used) if used]
    chosen = chosen or list(range(len(steps.used)))
    totals = {name: _sum(values, chosen, steps) for name, values in steps.phase_seconds.items()}
    waits = {name: _sum(values, chosen, steps) for name, values in steps.wait_seconds.items()}
    all_s = _sum(steps.seconds, chosen, steps)
    if all_s <= 0:
        return 0, []
    count = sum(steps.steps[at] for at in chosen)
    return count, [(n, totals[n] / all_s, waits.get(n, 0.0) / all_s) for n in totals]


def _sum(values: Numbers, chosen: list[int], steps: StepBuckets) -> float:
    return sum((values[at] or 0.0) * steps.steps[at] for at in chosen)


def _stack(
    phase: int, values: Numbers, waits: Numbers | None, pool: NumberPool
) -> dict[str, int | None]:
    has_waits = waits is not None and any(waits)
    return {
        "phase": phase,
        "v": pool.add(values),
        "wait": pool.add(waits) if waits is not None and has_waits else None,
    }


def exact_data(exact: Exact, phases: list[str], pool: NumberPool) -> dict[str, Any]:
    """Return where in the pool the spans are; lanes follow each other in each array."""
    lanes, calls = exact.lanes, set(exact.collectives)
    lengths = [window.end_s - window.start_s for window in exact.windows]
    scale_s = median(lengths) if lengths else 1.0  # times are exact to 1/100,000 of a window
    starts = [start for lane in lanes for start in lane.start_s]
    ends = [end for lane in lanes for end in lane.end_s]
    waits = [edge for lane in lanes for edge in lane.wait_s]
    offsets = [0, *accumulate(len(lane.name) for lane in lanes)][: len(lanes)]
    return {
        "windows": [
            {"why": w.why, "step": w.step, "start": w.start_s, "end": w.end_s}
            for w in exact.windows
        ],
        "names": [
            {"name": name, "phase": _phase_of(name, phases), "call": name in calls}
            for name in exact.names
        ],
        "ranks": pool.add_integers([lane.rank for lane in lanes]),
        "counts": pool.add_integers([len(lane.name) for lane in lanes]),
        "name": pool.add_integers([name for lane in lanes for name in lane.name]),
        "depth": pool.add_integers([depth for lane in lanes for depth in lane.depth]),
        "start": pool.add_times(starts, scale_s),
        "length": pool.add_times([e - s for s, e in zip(starts, ends, strict=True)], scale_s),
        "meeting": pool.add_integers([number for lane in lanes for number in lane.meeting]),
        "open": pool.add_integers(
            [offset + at for offset, lane in zip(offsets, lanes, strict=True) for at in lane.open]
        ),
        "waitCounts": pool.add_integers([len(lane.wait_s) // 2 for lane in lanes]),
        "waitStart": pool.add_times(waits[::2], scale_s),
        "waitLength": pool.add_times(
            [e - s for s, e in zip(waits[::2], waits[1::2], strict=True)], scale_s
        ),
    }


def phases_of_spans(exact: Exact) -> set[str]:
    """Return the first parts of the names of spans that are no collectives."""
    return {name.partition("/")[0] for name in {*exact.names} - {*exact.collectives}}


def _phase_of(name: str, phases: list[str]) -> int:
    root = name.partition("/")[0]
    return phases.index(root) if root in phases else -1
