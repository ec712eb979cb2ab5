"""Views at the edges of what a chart draws, each by what it shows; `drawn.txt` has the charts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grpo_doctor_reports.charts import bars_of
from grpo_doctor_reports.charts.curves import curves_chart
from grpo_doctor_reports.charts.figure import Chart
from grpo_doctor_reports.charts.heatmap import heatmap_chart
from grpo_doctor_reports.charts.lanes import lanes_chart
from grpo_doctor_reports.charts.steps import steps_chart
from grpo_doctor_reports.charts.strips import strips_chart
from grpo_doctor_reports.charts.waterfall import waterfall_chart
from grpo_doctor_reports.schema.report import read_report
from tests.demo_reports.drawn import with_drawn
from tests.unit.reports.charts.built import report

Views = dict[str, Any]
Charts = dict[str, Callable[[], Chart | None]]


def _of(chart: Callable[[Any], Chart | None], views: dict[str, Views]) -> Charts:
    def of_one(given: Views) -> Callable[[], Chart | None]:
        return lambda: chart(report(**given))

    return {name: of_one(given) for name, given in {"nothing": {}, **views}.items()}


# --- the run over time ---------------------------------------------------------------------------


def band(
    rank: int, phase: str = "train", start_s: float = 0.0, end_s: float = 1.0, **more: Any
) -> Views:
    return {"rank": rank, "phase": phase, "start_s": start_s, "end_s": end_s, **more}


def bands(count: int) -> list[Views]:
    return [band(rank) for rank in range(count)]


def timed(number: int) -> Views:
    return {"number": number, "start_s": float(number), "end_s": number + 1.0}


def buckets(steps: list[int], **more: Any) -> Views:
    """One after the other, each of so many steps."""
    count = len(steps)
    return {
        "first": list(range(count)), "last": list(range(count)), "steps": steps,
        "used": [True] * count, "kind": ["steady"] * count,
        "start_s": [float(at) for at in range(count)], "end_s": [at + 1.0 for at in range(count)],
        **more,
    }  # fmt: skip


def means(steps: list[int]) -> Views:
    return buckets(steps, ranks=[0], phase_seconds={"train": [[1.0, 1.0]]})


def window(why: str, step: int | None = None, at: float = 0.0) -> Views:
    return {"why": why, "step": step, "start_s": at, "end_s": at + 1.0}


def exact(*windows: Views, **more: Any) -> Views:
    lane = {"rank": 0, "name": [0], "depth": [0], "start_s": [0.0], "end_s": [1.0], "meeting": [-1]}
    drawing = {"windows": list(windows), "names": ["train"], "lanes": [lane], **more}
    return {"timeline": {"exact": drawing}}


def lanes_of(ranks: list[int], views: Views) -> Callable[[], Chart | None]:
    run = {"ranks": [{"rank": rank} for rank in ranks]}
    return lambda: lanes_chart(read_report({"schema": 1, "run": run, "views": with_drawn(views)}))


OPEN = [band(1, "rollout", 3.0, 9.0, open=True), band(1, "rollout/generate", 3.0, 9.0, open=True)]
RANKS = buckets([1, 1], ranks=[4, 2], phase_seconds={"train": [[1.0, 1.0], [1.0, 1.0]]})
OWN = {"means": {"ranks": [0, 1, 2], "own_seconds": [1.0, 2.0, 3.0]}}
ALL_WINDOWS = [
    window("slow", 9), window("end", at=8.0), window("named", 4, 4.0), window("worst", 7, 7.0),
    window("open", 11, 11.0), window("median", 5, 5.0), window("start"), window("named", 6),
    window("slow", 10),
]  # fmt: skip
MEETING: Views = {
    "windows": [window("median", 3, 10.0)],
    "names": ["train", "all_reduce"],
    "collectives": ["all_reduce"],
    "lanes": [
        {"rank": rank, "name": [0, 1], "depth": [0, 1], "start_s": [10.0, 10.5 + late],
         "end_s": [11.0, 10.75], "meeting": [-1, 4], "wait_s": waits}
        for rank, late, waits in ((1, 0.0, [10.5, 10.625]), (3, 0.125, []))
    ],
}  # fmt: skip
WHOLE = {"ranks": RANKS, "exact": {**MEETING, "windows": [window("whole")]}}

LANES: Charts = {
    "ranks that left no phase are named": lanes_of(
        [0, 60, 61, 62, 63], {"timeline": {"bands": [band(0, end_s=9.0)]}}
    ),
    "one rank that left no phase": lanes_of(
        [0, 1, 3], {"timeline": {"bands": [band(0)]},
                    "heatmap": {"means": {"ranks": [1], "own_seconds": [1.0]}}}
    ),
    **_of(lanes_chart, {
        "an open band is marked, sub-spans lie in their phase": {
            "timeline": {"end_s": 9.0, "bands": OPEN}},
        **{f"the height of {count} lanes": {"timeline": {"bands": bands(count)}}
           for count in (1, 3, 15, 16)},
        "of seventy lanes those of the means first": {
            "timeline": {"bands": bands(70), "ranks": {**RANKS, "ranks": [4, 69]}}},
        "lanes of means alone": {"timeline": {"ranks": RANKS}, "steps": [timed(1)]},
        "without times of steps": {"timeline": {"ranks": RANKS}},
        "without lanes": {"steps": [timed(1)]},
        "lanes without a span": {
            "timeline": {"exact": {"lanes": [{"rank": 0}]}}, "steps": [timed(1)]},
        "nor times of steps": {"timeline": {"exact": {"lanes": [{"rank": 0}]}}},
        "lanes of either kind": {"timeline": {"ranks": RANKS, "bands": [band(2), band(9)]}},
        "shares from a two thousandth, waits from a two hundredth": {
            "timeline": {"bands": bands(1)},
            "step_buckets": buckets(
                [3], seconds=[2_000.0],
                phase_seconds={"train": [1_989.0], "rollout": [10.0], "sync": [1.0],
                               "offload": [0.9]},
                wait_seconds={"train": [9.0], "rollout": [10.0]})},
        "the mean is over ranks without a lane too": {
            "timeline": {"bands": bands(1)}, "heatmap": {"ranks": [0], **OWN},
            "step_buckets": buckets([1], seconds=[1.0], phase_seconds={"train": [1.0]})},
        "all ranks have a lane": {"timeline": {"bands": bands(3)}, "heatmap": OWN},
        "without steps the outermost spans are added up": {"timeline": {"end_s": 8.0, "bands": [
            band(0, "train", 1.0, 3.0), band(0, "train/forward", 1.0, 2.5),
            band(1, "train", 2.0, 3.0), band(0, "rollout", 3.0, 8.0),
            *(band(1, f"p{at}", 3.0, 3.5) for at in range(4))]}},
        **{f"a column stands for {lanes} steps, for {of_all} in the mean": {
            "timeline": {"ranks": means(lanes)}, "step_buckets": buckets(of_all)}
           for lanes, of_all in (([1, 1], [1, 1]), ([2, 1], [1, 2]), ([2, 2], [1, 3]),
                                 ([1, 1], [5, 5]))},
        "windows are gone to by their names in this order": exact(*ALL_WINDOWS),
        "eight windows have a button": exact(*[window("named", at) for at in range(9)]),
        "of the whole run no word about windows": exact(window("whole")),
        "no window": exact(),
        "one window": exact(window("slow", 1)),
        "spans left out are counted with the longest": exact(
            window("whole"), spans_left_out=3, longest_left_out_s=0.002),
        "a collective is linked from rank to rank": {"timeline": {"end_s": 20.0, "exact": MEETING}},
        "spans where thirty windows fit": {
            "timeline": {"ranks": RANKS, "end_s": 600.0, "exact": MEETING}, "steps": [timed(1)]},
        **{f"spans of {many} steps": {
            "timeline": WHOLE, "step_buckets": buckets([many], seconds=[2.0])}
           for many in (30, 31)},
    }),
}  # fmt: skip

# --- samples -------------------------------------------------------------------------------------

MOVES: list[float | None] = [1.0, 2.0]


def track(name: str, values: list[float | None], unit: str = "%", **more: Any) -> Views:
    times = [float(at) for at in range(len(values))]
    return {"name": name, "unit": unit, "group": "host", "t_s": times, "v": values, **more}


def tracks(*given: Views, left_out: int = 0, bands: list[Views] | None = None) -> Views:
    more = {"bands": bands} if bands else {}
    timeline = {"end_s": 9.0, "tracks": list(given), "tracks_left_out": left_out, **more}
    return {"timeline": timeline}


def many(count: int, names: int, values: list[float | None] = MOVES) -> list[Views]:
    return [track(f"t{at % names:02}", values) for at in range(count)]


def wave(samples: int) -> list[float | None]:
    return [float(at % 7) for at in range(samples)]


KNOWN = ("host.psi_cpu", "host.cpu", "gpu.power", "gpu.util")
STRIPS = _of(lambda document: strips_chart(document.views.timeline), {
    "what never changes is said": tracks(
        track("gpu.throttle", [0.0, 0.0], "", group="gpu"), track("host.cpu", MOVES),
        track("host.swap_used", [0.0, 0.0], "bytes"),
        track("host.shm_size", [2.0**30, 2.0**30], "bytes"), left_out=2),
    "groups and strips in an order of their own": tracks(
        track("mine", MOVES, group="engine"), track("b", MOVES), track("a", MOVES),
        track("host.psi_cpu", MOVES), track("host.cpu", MOVES),
        track("gpu.util", MOVES, group="gpu"), track("rank.cpu", MOVES, group="rank")),
    "lines of one name share a strip": tracks(
        track("gpu.util", [1.0, None, 3.0], label="GPU 0"), track("gpu.util", MOVES)),
    "one sample is drawn, several equal ones are said": tracks(
        track("a", [5.0]), track("b", [5.0, None, 5.0]), track("c", [None])),
    "two that stay where they are": tracks(
        track("a", [5.0, 5.0]), track("a", [7.0, 7.0]), track("b", MOVES)),
    "one that stays and one that moves": tracks(track("a", [5.0, 5.0]), track("a", [7.0, 8.0])),
    "bytes in the unit that reads best": tracks(
        track("a", [None, -3.0 * 2**20, 1.0 * 2**20], "bytes/s"),
        track("b", [1.0, 1023.0], "bytes")),
    "three known quantities are said": tracks(*(track(n, [1.0, None, 3.0]) for n in KNOWN)),
    "an unknown one is not": tracks(track("mine", MOVES)),
    "four hundred tracks": tracks(*many(400, 3)),
    "beyond four hundred": tracks(*many(402, 3)),
    "beyond four hundred and left out": tracks(*many(402, 3), left_out=3),
    "thirty names": tracks(*many(31, 31)),
    **{f"of {count} that never change thirty are named": tracks(*many(count, count, [1.0, 1.0]))
       for count in (30, 31, 33)},
    **{f"{samples} samples": tracks(track("a", wave(samples))) for samples in (600, 601)},
    "a hundred tracks share the points": tracks(*many(100, 1, wave(200))),
    "four hundred share them": tracks(*many(400, 1, wave(200))),
    "the phases of the first rank lie behind": tracks(
        {"name": "a", "t_s": [0.0, 1.0], "v": MOVES},
        bands=[band(0, "train", 1.0, 2.0), band(1, "rollout", 1.0, 2.0)]),
})  # fmt: skip

# --- learning curves -----------------------------------------------------------------------------

RISES: list[float | None] = [1.0, 2.0]
JUDGED = {"metric": "eval_reward", "steps": [2, 4, 6], "values": [0.25, 0.75, 0.5], "best_step": 4,
          "best_saved": True}  # fmt: skip
REWARD: Views = {"reward": [0.1, 0.2]}
EVALUATED: Views = {"eval_reward": [None, 0.25], "loss": [1.0, 2.0]}


def curves(series: Views, evaluation: Views | None = None, steps: list[int] | None = None) -> Views:
    count = len(next(iter(series.values())))
    metrics = {"steps": steps or list(range(1, count + 1)), "series": series}
    return {"metrics": metrics, **({"evaluation": evaluation} if evaluation else {})}


def flat(count: int) -> Views:
    return {f"f{at:02}": [2.0, None, 2.0] for at in range(count)}


CURVES = _of(lambda document: curves_chart(document.views.metrics, document.views.evaluation), {
    "reward and loss first, the rest is counted": curves(
        {**{f"m{at:02}": RISES for at in range(30)}, "loss": [3.0, 1.0], "reward": [None, 0.5]}),
    "one that never changes is said": curves(
        {"reward": [1.0, 1.0], "kl": [0.1, 0.2], "learning_rate": [0.003, 0.003]}),
    "evaluations over the reward of training": curves({**EVALUATED, **REWARD}, JUDGED),
    "evaluations without a reward of training": curves(EVALUATED, JUDGED),
    **{f"no evaluation with {odd}": curves(REWARD, {**JUDGED, **odd})
       for odd in ({"best_step": 5}, {"best_step": None}, {"values": [0.2, None, 0.5]})},
    **{f"{count} metrics": curves({f"m{at:02}": RISES for at in range(count)})
       for count in (24, 25)},
    **{f"{count} that never change": curves({"kl": [1.0, 2.0, 3.0], **flat(count)})
       for count in (16, 17, 20)},
    "where nothing changes all is drawn": curves({"b": [1.0, 1.0], "a": [2.0, 2.0]}),
    "one value is no line that never changes": curves({"b": [1.0, None], "a": RISES}),
    "those that everybody looks at first": curves(dict.fromkeys(
        ("aaa", "grad_norm", "kl", "loss", "reward", "zzz"), RISES)),
    "the last known value": curves({"loss": [3.0, 1.5, None]}, steps=[5, 7, 9]),
    **{f"{steps} points": curves({"loss": [float(at) for at in range(steps)]})
       for steps in (250, 251)},
    "three are spoken of": curves(dict.fromkeys(("reward", "loss", "kl", "entropy"), RISES)),
})  # fmt: skip

# --- steps ---------------------------------------------------------------------------------------


def step(number: int, seconds: float, kind: str = "steady", rank: int | None = 1) -> Views:
    start = 10.0 * number
    return {"number": number, "start_s": start, "end_s": start + seconds, "seconds": seconds,
            "kind": kind, "slowest_rank": rank}  # fmt: skip


def phases(steps: int, **seconds: Any) -> Views:
    every = [[9.0, 2.0, 6.0][:steps]] * 2
    return {"ranks": [0, 1], "steps": list(range(1, steps + 1)), "step_seconds": every,
            "phase_seconds": seconds}  # fmt: skip


BUCKETS: Views = {
    "first": [1, 2], "last": [1, 4], "steps": [1, 3], "used": [False, True],
    "kind": ["warmup", "steady"], "start_s": [10.0, 20.0], "end_s": [19.0, 26.0],
    "seconds": [9.0, 2.0], "worst_seconds": [9.0, 3.0], "worst_step": [1, 4],
    "worst_rank": [None, 5], "phase_seconds": {"train": [4.0, 1.0]}, "median_seconds": 2.0,
}  # fmt: skip
WARM = step(1, 9.0, "warmup")
STEPS = _of(lambda document: steps_chart(document.views), {
    "the worst are steady, the longest first": {
        "steps": [WARM, step(2, 2.0), step(3, 6.0), step(4, 2.5)]},
    "a step's phases beside the median of steady steps": {
        "heatmap": phases(3, train=[[5.0, 1.0, 2.0], [5.0, 1.0, 4.0]]),
        "steps": [WARM, step(2, 2.0), step(3, 6.0)]},
    "times, kind and slowest rank": {"steps": [WARM, step(2, 2.0, rank=None)]},
    "the slowest rank is unknown": {"steps": [step(1, 2.0, rank=None), step(2, 1.0, rank=0)]},
    "one step": {"steps": [step(2, 1.0, rank=0)]},
    "without a steady step all are compared": {
        "steps": [step(1, 4.0, "warmup"), step(2, 2.0, "warmup")]},
    "without a median there is nothing to compare with": {"steps": [step(1, 0.0)]},
    **{f"{steady} steady steps": {"steps": [step(at, 1.0 + at) for at in range(steady)]}
       for steady in (3, 100, 101)},
    "buckets have a mean and their worst step": {
        "steps": [WARM, step(2, 2.0), step(3, 1.0), step(4, 3.0)], "step_buckets": BUCKETS},
    "phases without a median are not compared": {
        "steps": [step(1, 1.0), step(2, 2.0), step(3, 1.0)],
        "heatmap": phases(2, train=[[1.0, None], [3.0, None]], sync=[[None, None]] * 2)},
})  # fmt: skip

# --- ranks by steps ------------------------------------------------------------------------------

TWO: Views = {"ranks": [0, 7], "steps": [3, 4], "step_seconds": [[2.0, 4.0], [3.0, None]],
              "wait_seconds": [[0.5, None], [4.0, 1.0]]}  # fmt: skip
COMPARED: dict[str, Views] = {
    "of several ranks": {"ranks": [0, 7], "own_seconds": [1.0, 2.0], "wait_seconds": [3.0, 0.5]},
    "of one rank": {"ranks": [0], "own_seconds": [1.0], "wait_seconds": [3.0]},
    "of what is known": {"ranks": [0, 7], "own_seconds": [1.0, None], "wait_seconds": [None, 0.5]},
    "of nothing": {"ranks": [0, 7]},
}
PEAK = [2.0] * 50 + [3.0] * 49 + [99.0]
HEATMAPS: dict[str, Views] = {
    "own work is what is not waiting, never below nothing": TWO,
    "a phase is without its own waiting": {
        **TWO, "phase_wait_seconds": {"train": [[0.25, None], [0.0, 1.0]]},
        "phase_seconds": {"train": [[1.0, 2.0], [3.0, 4.0]], "rollout": [[1.0, 1.0], [1.0, 1.0]]}},
    "what is known nowhere is no choice": {
        "ranks": [0], "steps": [1], "step_seconds": [[2.0]], "wait_seconds": [[None]]},
    "no rank": {"ranks": [], "steps": [1]},
    "no step": {"ranks": [0], "steps": [], "step_seconds": [[]]},
    "no number": {"ranks": [0], "steps": [1], "step_seconds": [[None]]},
    **{f"who works longest, {name}": {**TWO, "means": given} for name, given in COMPARED.items()},
    **{f"{ranks} ranks of {total} steps": {
        "ranks": list(range(ranks)), "steps": [1, 2], "step_seconds": [[1.0, 2.0]] * ranks,
        "steps_total": total}
       for ranks, total in ((128, 2), (129, 2), (256, 2), (2, 3))},
    "a thousand steps of a hundred ranks": {
        "ranks": list(range(100)), "steps": list(range(1_000)),
        "step_seconds": [[1.0] * 1_000] * 100, "steps_total": 1_000},
    "a few slow steps do not bleach the rest": {
        "ranks": [0], "steps": list(range(100)), "step_seconds": [PEAK]},
}  # fmt: skip

# --- the mean step -------------------------------------------------------------------------------

TRAIN: Views = {"start_s": 2.0, "seconds": 3.0, "wait_seconds": 0.5}
BARS: dict[str, Views] = {
    "a bar has work, transfer and what is neither": {"train": {
        **TRAIN, "transfer_seconds": 0.25, "idle_seconds": 0.125, "p10_s": 2.5, "p90_s": 4.0}},
    **{f"what is unknown is not mentioned: {ends}": {"train": {**TRAIN, **ends}}
       for ends in ({}, {"p10_s": 2.5}, {"p90_s": 4.0})},
    "the step ends where its last bar does": {
        "rollout": {"start_s": 0.5, "seconds": 6.0}, "train": TRAIN},
    "forty bars, and the summary is of all": {
        f"p{at}": {"start_s": float(at), "seconds": 5.0 if at == 40 else 1.0}
        for at in range(41)},
}  # fmt: skip


def _mean_step(bars: Views) -> Callable[[], Chart | None]:
    document = {"schema": 1, "summary": {"phases": bars}}
    return lambda: waterfall_chart(bars_of(read_report(document)))


CASES: dict[str, Charts] = {
    "lanes": LANES, "strips": STRIPS, "curves": CURVES, "steps": STEPS,
    "heatmap": _of(lambda document: heatmap_chart(document.views.heatmap),
        {name: {"heatmap": views} for name, views in HEATMAPS.items()}),
    "waterfall": {name: _mean_step(bars) for name, bars in {"nothing": {}, **BARS}.items()},
}  # fmt: skip
