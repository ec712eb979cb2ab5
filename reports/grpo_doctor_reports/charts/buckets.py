"""Means of neighbouring steps as the page's script draws them, and the shares that it will show."""

from __future__ import annotations

from typing import Any

from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.palette import UNATTRIBUTED, order_of
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.schema.timeline import Buckets, RankBuckets, StepBuckets


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
