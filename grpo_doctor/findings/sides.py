"""Rollout and training side by side: which of them waits for the other, and what GPUs each has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from grpo_doctor.analysis.accounting import ROLLOUT_WAIT_SPAN
from grpo_doctor.findings.rollout_servers import joined_engines
from grpo_doctor.findings.rule import Evidence, scaled
from grpo_doctor.findings.view import RunView, integer
from grpo_doctor.trace.intervals import Intervals, intersect, none, subtract, together, union
from grpo_doctor.trace.model import Kind
from grpo_doctor.whatif import Add, Edit, Replay

# Below it moving a whole GPU would only move the wait to the other side.
MIN_SHARE = 0.1
# A rollout that is ahead waits here for the trainer to take samples.
QUEUE_SPAN = "rollout/queue"
# Nothing more is generated until the reward has room.
_REWARD_QUEUE_SPAN = "reward/queue"
GENERATE_SPAN, REWARD_SPAN, TOOLS_SPAN = "rollout/generate", "reward", "rollout/tools"
# Between both the engine generates nothing.
_PAUSE_SPAN, _SYNC_SPAN = "sync/pause", "sync"
_LOOPS = ("rollout", "rollout-loop", "rollouter")
_STALENESS = ("sample/staleness_mean", "training/off_policy/trajectory_staleness/mean")
_QUEUE_DEPTH = ("sample/rollout_queue_size", "fully_async/monitor/queue/mq_queue_size")
# Of each log alone.
_DROPPED = (
    "sample/dropped_stale_total", "batch/dropped_oversize_total",
    "training/off_policy/evicted_samples",
)  # fmt: skip
# Of each step alone, what was trained on.
_TRAINED_SAMPLES = "batch/samples_per_step"
# Means: of a tool's call, of calls in a turn, of turns and seconds in a trajectory.
_TRAJECTORY = (
    "tools/latency_s", "tools/parallel_calls_mean", "rollout/turns_mean", "rollout/duration_s",
)  # fmt: skip
# Since the run began.
_DROPPED_SO_FAR = "fully_async/count/dropped_stale_samples"
_GENERATED_SO_FAR = "fully_async/count/total_generated_samples"
_GENERATED, _TRAINED = "rollout/generated_tok_s", "perf/trained_tok_s_wall_clock"
METRICS = (
    *_STALENESS, *_QUEUE_DEPTH, *_DROPPED, _DROPPED_SO_FAR, _GENERATED_SO_FAR, _GENERATED, _TRAINED,
    _TRAINED_SAMPLES, *_TRAJECTORY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sides:
    """Shares of the steps' time, 0 to 1.

    Attributes:
        trainer_waits: the ranks wait for samples.
        rollout_waits: the rollout waits for room in the queue, and generates nothing.
        unused: of what was generated, what was dropped or is never trained on; None if unknown.
        gpus: how many train and how many generate; None if unknown.
    """

    trainer_waits: float
    rollout_waits: float
    unused: float | None
    gpus: tuple[int, int] | None

    @property
    def surplus(self) -> float:
        """The share of the rollout's time that no step needed.

        While ranks wait for samples, dropped ones are no spare time: fresh ones are missing.
        """
        spare = 0.0 if self.trainer_waits >= MIN_SHARE else self.unused or 0.0
        return 1 - (1 - self.rollout_waits) * (1 - spare)


# What of the trainer's work is shared out over its GPUs; the rest takes as long on any number.
_SHARED_OUT = ("train", "logprob")
_COPY = ("parallel.tensor", "parallel.pipeline", "parallel.context")


def best_split(view: RunView, sides: Sides) -> tuple[int, int, Replay] | str:
    """Return how many GPUs, and of how many, change sides in the split of the same GPUs with the
    shortest step, with its replay; or why there is none.

    A step takes as long as the slower side. Generation takes time inverse to its GPUs, which are
    whole engines; those that train hold whole copies of the model.
    """
    engine = _engine_gpus(view)
    copies = [integer(view.fact(name)) or 1 for name in _COPY]
    copy = int(np.prod(copies))
    if sides.gpus is None or not engine:
        return "how many GPUs train, generate and make an engine is unknown"
    train, generate = sides.gpus
    if train % copy or generate % engine:
        return f"not modeled: {train} GPUs for copies of {copy}, {generate} for engines of {engine}"
    shared_s = sum(float(view.analysis.phase_work(phase).mean()) for phase in _SHARED_OUT)
    waits_s, total = sides.trainer_waits * view.step_s, train + generate

    def seconds(gpus: int) -> tuple[float, float]:
        trains = view.step_s - waits_s + shared_s * (train / gpus - 1)
        return trains, (1 - sides.surplus) * view.step_s * generate / (total - gpus)

    splits = [gpus for gpus in range(copy, total, copy) if not (total - gpus) % engine]
    best = min(splits, key=lambda gpus: (max(seconds(gpus)), abs(gpus - train)))
    if best == train:
        return f"no other split of the {total} GPUs is faster"
    trains, generates = seconds(best)
    scenario = f"with {best} GPUs that train and {total - best} that generate"
    more_s = max(0.0, generates - trains) - waits_s
    less, waits = Edit(_SHARED_OUT, train / best), Add(ROLLOUT_WAIT_SPAN, more_s)
    # Engines that wait have few requests at times: how busy they are is a bound.
    bold = None if best < train else (less, Add(ROLLOUT_WAIT_SPAN, -waits_s))
    said = f"{scenario} (cautious end: half of that helps)"
    replay = Replay((less, waits), said, half=True, at_most=bold)
    return abs(best - train), train if best < train else generate, replay


def sides_of(view: RunView) -> Sides:
    """Return what the spans and the framework's own metrics say of both sides."""
    return Sides(
        trainer_waits=view.of_step(view.span_seconds(ROLLOUT_WAIT_SPAN)),
        rollout_waits=_rollout_waits(view),
        unused=_unused(view),
        gpus=_gpus(view),
    )


def _rollout_waits(view: RunView) -> float:
    """Return the share of the steps' time in which rollout loops wait and generate nothing.

    A loop that waits still answers what is in flight. The wait in which a run ends is never
    written, so a loop's time ends with its last span.
    """
    shares, windows, spans = [], view.analysis.used_windows, view.trace.spans
    for process in view.trace.processes:
        waits, busy = (_spans_of(view, process.index, n) for n in (QUEUE_SPAN, GENERATE_SPAN))
        if process.role in _LOOPS and len(waits):
            last_ns = spans.end_ns[spans.of_process(process.index)].max()
            seen = union(windows.start_ns, np.minimum(windows.end_ns, last_ns))
            idle = subtract(union(waits.start_ns, waits.end_ns), union(busy.start_ns, busy.end_ns))
            if seen.total_ns:
                shares.append(intersect(idle.intervals, seen).total_ns / seen.total_ns)
    return float(np.mean(shares)) if shares else 0.0


def loop_shares(view: RunView, names: tuple[str, ...]) -> Mapping[str, float]:
    """Return the share of the steps' time that each span was running in rollout loops.

    The mean over the loops that have any such span: a server next to them has none.
    """
    windows = view.analysis.used_windows
    shares = {}
    for name in names:
        parts = [
            intersect(union(rows.start_ns, rows.end_ns), windows).total_ns / windows.total_ns
            for rows in _spans_of_loops(view, name)
            if windows.total_ns
        ]
        if any(parts):
            shares[name] = float(np.mean(parts))
    return shares


def slowest_part(view: RunView, parent: str) -> str | None:
    """Which function of the user's takes most time in rollout loops: a reward, a tool, by name."""
    totals = {
        name: sum(int((rows.end_ns - rows.start_ns).sum()) for rows in _spans_of_loops(view, name))
        for name in view.trace.names
        if name.startswith(f"{parent}/") and name != _REWARD_QUEUE_SPAN
    }
    slowest = max(totals, key=lambda name: totals[name], default="")
    return slowest.removeprefix(f"{parent}/") if totals.get(slowest) else None


def tools_of_trajectories(view: RunView) -> float | None:
    """Return what part of a trajectory's time its tools take, 0 to 1; None where that is unknown.

    Where none was recorded, by the framework's own means: trajectories run side by side, so some
    tool and some generation are running at any time.
    """
    recorded = _share_of_trajectories(view, ("tool",), without=("buffer",))
    if recorded is not None:
        return recorded
    means = [view.metric_mean(key) for key in _TRAJECTORY]
    call_s, calls_per_turn, turns, trajectory_s = (mean or 0.0 for mean in means)
    if None in means or trajectory_s <= 0:
        return None
    # The last turn calls none.
    return min(1.0, call_s * calls_per_turn * max(0.0, turns - 1) / trajectory_s)


def queued_of_requests(view: RunView) -> float | None:
    """Return what part of their time in the engine requests wait in its queue; None: not seen."""
    found = view.trace.trajectories
    if found is None or not {"prefill", "decode"} & set(found.states):
        return None
    others = set(found.states) - {"engine queue", "prefill", "decode"}
    return _share_of_trajectories(view, ("engine queue",), without=tuple(others))


def queue_evidence(view: RunView) -> Evidence:
    """Return that as evidence."""
    share = scaled(queued_of_requests(view), 100)
    return Evidence("a request's time in the engine's queue", share, "%", "trajectories")


def _share_of_trajectories(
    view: RunView, states: tuple[str, ...], without: tuple[str, ...]
) -> float | None:
    found = view.trace.trajectories
    spent = {} if found is None else {name: each.total for name, each in found.states.items()}
    total = sum(seconds for name, seconds in spent.items() if name not in without)
    return sum(spent.get(name, 0.0) for name in states) / total if total else None


def _spans_of_loops(view: RunView, name: str) -> list[Intervals]:
    """Return the spans of a name in each rollout loop that has any; they may overlap."""
    loops = (process.index for process in view.trace.processes if process.role in _LOOPS)
    return [rows for index in loops if len(rows := _spans_of(view, index, name))]


def _spans_of(view: RunView, process: int, name: str) -> Intervals:
    """Return the spans of a name in one process, by its index; they may overlap."""
    spans, known = view.trace.spans, view.trace.names
    if name not in known:
        return none()
    block = spans.of_process(process)
    chosen = (spans.kind[block] == Kind.SPAN) & (spans.name[block] == known.index(name))
    return Intervals(spans.start_ns[block][chosen], spans.end_ns[block][chosen])


def evidence_of(view: RunView, sides: Sides) -> tuple[Evidence, ...]:
    """What is known of the queue between both: staleness, depth, what was dropped or not used."""
    rows = [
        _mean(view, "staleness of samples", _STALENESS, "weight updates"),
        _mean(view, "samples in the queue", _QUEUE_DEPTH, "samples"),
        _dropped(view),
    ]
    if sides.rollout_waits:
        rows.append(
            Evidence(
                "rollout waits for room in the queue",
                100 * sides.rollout_waits,
                "%",
                f"{QUEUE_SPAN} spans outside {GENERATE_SPAN}",
            )
        )
    rows += [_paused(view), _held_back(view)]
    if sides.unused is not None:
        rows.append(Evidence("generated but never trained on", 100 * sides.unused, "%", "metrics"))
    return tuple(row for row in rows if row is not None)


def _paused(view: RunView) -> Evidence | None:
    """Return how long the rollout generates nothing because new weights come."""
    windows = view.analysis.used_windows
    if not {_PAUSE_SPAN, _SYNC_SPAN} <= set(view.trace.names) or not windows.total_ns:
        return None
    syncs = [
        _spans_of(view, process.index, _SYNC_SPAN)
        for process in view.trace.processes
        if len(_spans_of(view, process.index, _PAUSE_SPAN))
    ]
    share = 100 * intersect(together(syncs), windows).total_ns / windows.total_ns
    return Evidence("rollout paused for new weights", share, "%", f"{_SYNC_SPAN} spans")


def _held_back(view: RunView) -> Evidence | None:
    """Return how long generation waits for the reward, and not for the trainer behind it."""
    windows = view.analysis.used_windows
    behind = [union(rows.start_ns, rows.end_ns) for rows in _spans_of_loops(view, QUEUE_SPAN)]
    waits = [
        union(rows.start_ns, rows.end_ns) for rows in _spans_of_loops(view, _REWARD_QUEUE_SPAN)
    ]
    if not waits or not windows.total_ns:
        return None
    for queue in behind:
        waits = [subtract(wait, queue).intervals for wait in waits]
    held_ns = np.mean([intersect(wait, windows).total_ns for wait in waits])
    share = 100 * float(held_ns) / windows.total_ns
    return Evidence("generation waits for the reward", share, "%", f"{_REWARD_QUEUE_SPAN} spans")


def _mean(view: RunView, text: str, keys: tuple[str, ...], unit: str) -> Evidence | None:
    for key in keys:
        average = view.metric_mean(key)
        if average is not None:
            return Evidence(text, average, unit, f"metric {key}")
    return None


def _dropped(view: RunView) -> Evidence | None:
    keys = [key for key in _DROPPED if view.metric_called(key) is not None]
    if keys:
        return Evidence("samples dropped", _sum(view, keys), "samples", f"metric {keys[0]}")
    last = _last(view, _DROPPED_SO_FAR)
    return None if last is None else Evidence("samples dropped", last, "samples", _DROPPED_SO_FAR)


def _unused(view: RunView) -> float | None:
    dropped, generated = _last(view, _DROPPED_SO_FAR), _last(view, _GENERATED_SO_FAR)
    if dropped is not None and generated:
        return min(1.0, dropped / generated)
    trained = _sum(view, [_TRAINED_SAMPLES])
    if trained:  # rates would also count what is in the queue still
        dropped = _sum(view, list(_DROPPED))
        return dropped / (trained + dropped)
    rates = view.metric_mean(_GENERATED), view.metric_mean(_TRAINED)
    if rates[0] is None or rates[1] is None or rates[0] <= 0:
        return None
    return min(1.0, max(0.0, 1 - rates[1] / rates[0]))


def _sum(view: RunView, keys: list[str]) -> float:
    curves = [view.metric_called(key) for key in keys]
    return float(sum(curve.finite.values.sum() for curve in curves if curve is not None))


def _last(view: RunView, key: str) -> float | None:
    curve = view.metric_called(key)
    return float(curve.finite.values[-1]) if curve is not None and len(curve.finite) else None


def _engine_gpus(view: RunView) -> int | None:
    """Of one engine; TRL's trainer does not know the flags of a server that did not join."""
    joined, name = joined_engines(view), "vllm.tensor_parallel_size"
    if joined:
        return joined[0]
    return integer(view.fact(name) if view.trace.run.framework == "trl" else view.now(name))


def _gpus(view: RunView) -> tuple[int, int] | None:
    """By the servers that joined, or the GPUs that were sampled, or the engine's own settings."""
    train, joined = len(view.trace.ranks), joined_engines(view)
    if train and joined:
        return train, joined[1]
    sampled = sum(gpu.visible for gpu in view.trace.gpus)
    parts = [view.trace.run.facts.get(f"vllm.{kind}_parallel_size") for kind in ("tensor", "data")]
    sizes = [part for part in parts if isinstance(part, int) and part > 0]
    generate = sampled - train if sampled > train else int(np.prod(sizes)) if sizes else 0
    return (train, generate) if train and generate else None
