"""Every step over time, and what its phases took next to the median step."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from grpo_doctor_reports import formatting
from grpo_doctor_reports.charts.figure import (
    Chart,
    Column,
    Figure,
    TimeAxis,
    axis,
    boxes,
    column,
    figure,
    known_mean,
    line,
    plain,
    token,
)
from grpo_doctor_reports.palette import color_of, order_of
from grpo_doctor_reports.schema.views import StepBuckets, StepEntry, Views

_STEADY: Final = "steady"
_WORST: Final = 100  # as many worst steps can be stepped through
_HEIGHT_PX: Final = 150
_KIND_COLORS: Final = {"open": "high", "warmup": "line", "eval": "kind-eval",
                       "checkpoint": "kind-checkpoint"}  # fmt: skip


def steps_chart(views: Views) -> Chart | None:
    """Return the chart of all steps, None where no step is known.

    Bars are drawn from buckets of steps; `facts` are single steps, for stepping through the worst.
    """
    steps = views.steps
    if not steps:
        return None
    steady = [step for step in steps if step.kind == _STEADY] or steps
    middle = views.step_buckets.median_seconds or 0.0
    ranked = sorted(range(len(steps)), key=lambda at: -_length(steps[at]))
    worst = [at for at in ranked if steps[at] in steady][:_WORST]
    return Chart(
        figures={"steps": _figure(views, middle)},
        summary=_summary(views, steady, middle),
        note=_note(views),
        facts={
            "number": Column([step.number for step in steps]),
            "start": Column([step.start_s for step in steps], 6),
            "end": Column([step.end_s for step in steps], 6),
            "seconds": column([_length(step) for step in steps]),
            "slowest": Column([step.slowest_rank for step in steps]),
            "kinds": [step.kind for step in steps],
            "worst": worst,
            "median": middle,
            "phases": _phases(views, steps),
        },
    )


def _figure(views: Views, middle: float) -> Figure:
    buckets, time = views.step_buckets, TimeAxis(views.timeline.end_s or views.steps[-1].end_s)
    longest = [w if w is not None else s for w, s in zip(buckets.worst_seconds, buckets.seconds,
                                                         strict=True)]  # fmt: skip
    top = max((s for s in longest if s is not None), default=0.0) or 1.0
    below, divisor = -0.045 * top, time.unit[0]
    centers = [(a + b) / 2 for a, b in zip(buckets.start_s, buckets.end_s, strict=True)
               if a is not None and b is not None]  # fmt: skip
    slower = [at for at, (worst, mean) in enumerate(zip(buckets.worst_seconds, buckets.seconds,
              strict=True)) if worst is not None and worst > 1.005 * (mean or 0.0)]  # fmt: skip
    marks = [buckets.worst_seconds[at] for at in slower]
    ends = [(buckets.start_s[at], buckets.end_s[at], None) for at in slower]
    hover = {
        "type": "scatter", "mode": "markers", "marker": {"size": 9, "opacity": 0},
        "x": time.moments(centers), "y": column([seconds or 0.0 for seconds in longest]),
        "hoverinfo": "text", "customdata": Column(list(buckets.worst_step)),
        "text": ["<br>".join(_words(buckets, at, middle)) for at in range(len(longest))],
    }  # fmt: skip
    median = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": middle, "y1": middle,
              "line": {"color": token("ink"), "width": 1, "dash": "dot"}}  # fmt: skip
    return figure(
        [
            *_phase_bars(buckets, time),
            *_kind_marks(buckets, time, below),
            line(time.moments([at for end in ends for at in end]),
                 column([at for mark in marks for at in (mark, mark, None)]), token("ink"),
                 hoverinfo="skip", line={"color": token("ink"), "width": 1.5}),
            hover,
        ],
        _HEIGHT_PX,
        hovermode="x",
        hoverdistance=40,
        margin={"l": 64, "r": 8, "t": 6, "b": 38},
        xaxis=time.layout(),
        yaxis=axis(range=[below, 1.06 * top], nticks=4, ticksuffix=" s "),
        shapes=[median],
        meta={"axis": "time", "unit": divisor},
    )  # fmt: skip


def _phase_bars(buckets: StepBuckets, time: TimeAxis) -> list[Figure]:
    """One trace per phase, each on top of the one before; wait is part of its phase."""
    tops = [0.0] * len(buckets.first)
    traces = []
    for phase in sorted(buckets.phase_seconds, key=order_of):
        seconds = [value or 0.0 for value in buckets.phase_seconds[phase]]
        low, tops = tops, [a + b for a, b in zip(tops, seconds, strict=True)]
        shown = [at for at, value in enumerate(seconds) if value > 0]
        traces.append(boxes(
            [time.moments([edge[at] for at in shown]) for edge in (buckets.start_s, buckets.end_s)]
            + [column([edge[at] for at in shown]) for edge in (low, tops)],
            color_of(phase), meta={"phase": phase},
        ))  # fmt: skip
    return traces


def _kind_marks(buckets: StepBuckets, time: TimeAxis, below: float) -> list[Figure]:
    """A mark under the steps that are not steady."""
    traces = []
    for kind in sorted({*buckets.kind} - {_STEADY}):
        places = [at for at, one in enumerate(buckets.kind) if one == kind]
        edges = [time.moments([edge[at] for at in places])
                 for edge in (buckets.start_s, buckets.end_s)]  # fmt: skip
        edges += [column([y] * len(places)) for y in (below, 0.3 * below)]
        traces.append(boxes(edges, token(_KIND_COLORS.get(kind, "kind-other"))))
    return traces


def _words(buckets: StepBuckets, at: int, middle: float) -> list[str]:
    """What a bar shows: its length, its slowest step, its phases."""
    first, last, seconds = buckets.first[at], buckets.last[at], buckets.seconds[at]
    name = f"step {first}" if first == last else f"steps {first} to {last}"
    many, worst, rank = buckets.steps[at] > 1, buckets.worst_seconds[at], buckets.worst_rank[at]
    if seconds is None:
        return [f"{name}: never ended"]
    words = [f"{name}: {'mean ' if many else ''}{formatting.seconds(seconds)}"
             + (f", {_against(seconds, middle)} vs. median" if middle > 0 else "")]  # fmt: skip
    if many and worst is not None:
        words.append(f"slowest: step {buckets.worst_step[at]}, {formatting.seconds(worst)}")
    if rank is not None:
        words.append(f"slowest rank: {rank}")
    for phase in sorted(buckets.phase_seconds, key=order_of, reverse=True):
        value, waits = buckets.phase_seconds[phase][at], buckets.wait_seconds.get(phase)
        wait = waits[at] if waits else None
        if value:
            of = f" ({formatting.seconds(wait)} waiting)" if wait else ""
            words.append(f"{plain(phase)} {formatting.seconds(value)}{of}")
    if buckets.kind[at] != _STEADY:
        left_out = "" if buckets.used[at] else ", not in the averages"
        words.append(plain(buckets.kind[at]) + left_out)
    return words


def _against(seconds: float, middle: float) -> str:
    return formatting.signed_percent(100 * (seconds / middle - 1))


def _length(step: StepEntry) -> float:
    return step.end_s - step.start_s if step.seconds is None else step.seconds


def _phases(views: Views, steps: list[StepEntry]) -> list[dict[str, Any]]:
    """Each phase of the single steps, with its median over the steady ones."""
    heatmap, medians = views.heatmap, views.step_buckets.median_phase_seconds
    phases = []
    for phase, rows in heatmap.phase_seconds.items():
        columns = (known_mean([row[at] for row in rows]) for at in range(len(heatmap.steps)))
        means = dict(zip(heatmap.steps, columns, strict=True))
        if phase in medians:
            seconds = column([means.get(step.number) for step in steps])
            phases.append({"name": phase, "color": color_of(phase), "median": medians[phase],
                           "seconds": seconds})  # fmt: skip
    return phases


def _summary(views: Views, steady: list[StepEntry], middle: float) -> str:
    worst = max(steady, key=_length)
    kinds: Counter[str] = Counter()
    for kind, steps in zip(views.step_buckets.kind, views.step_buckets.steps, strict=True):
        kinds[kind] += steps
    counted = kinds.pop(_STEADY, 0)
    many = counted or len(steady)
    apart = ", ".join(formatting.count(count, f"{'warm-up' if kind == 'warmup' else kind} step")
                      for kind, count in sorted(kinds.items()) if counted)  # fmt: skip
    change = _against(_length(worst), middle) if middle > 0 else ""
    longer = f" ({change} vs. the median of {formatting.seconds(middle)})" if change else ""
    by = "" if worst.slowest_rank is None else f", on rank {worst.slowest_rank}"
    return (
        f"Slowest of {formatting.count(many, 'step')}: step {worst.number}, "
        f"{formatting.seconds(_length(worst))}{longer}{by}."
        + (f" Excludes {apart}." if apart else "")
    )


def _note(views: Views) -> str:
    widest = max(views.step_buckets.steps, default=1)
    if widest == 1:
        return ""
    return f"Each bar is the mean of up to {widest} steps; the line above it marks the slowest."
