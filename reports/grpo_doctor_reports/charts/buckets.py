"""Means of neighbouring steps as the page's script draws them, and the shares that it will show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.palette import UNATTRIBUTED, order_of
from grpo_doctor_reports.schema.part import Numbers
from grpo_doctor_reports.timeline_model import Bucket, RankBuckets, StepBuckets


def buckets_data(buckets: Sequence[Bucket], end_s: float, pool: NumberPool) -> dict[str, Any]:
    """Return where in the pool the buckets' steps and times are."""
    kinds = sorted({bucket.kind for bucket in buckets})
    return {
        "first": pool.add_integers([bucket.first for bucket in buckets]),
        "last": pool.add_integers([bucket.last for bucket in buckets]),
        "steps": pool.add_integers([bucket.steps for bucket in buckets]),
        "used": pool.add_integers([int(bucket.used) for bucket in buckets]),
        "kind": pool.add_integers([kinds.index(bucket.kind) for bucket in buckets]),
        "kinds": kinds,
        "start": pool.add_times([bucket.start_s for bucket in buckets], end_s),
        "end": pool.add_times([bucket.end_s for bucket in buckets], end_s),
    }


def step_stacks(steps: StepBuckets, phases: list[str], pool: NumberPool) -> list[dict[str, Any]]:
    """Return per phase where its seconds per bucket are, and how much of them is waiting."""
    return [
        _stack(phases.index(name), values, steps.waits_s.get(name), pool)
        for name, values in steps.phases_s.items()
    ]


def rank_stacks(ranks: RankBuckets, phases: list[str], pool: NumberPool) -> list[dict[str, Any]]:
    """Return the same with the buckets of all ranks one after another."""
    return [
        _stack(
            phases.index(name),
            [value for row in rows for value in row],
            [value for row in ranks.waits_s[name] for value in row]
            if name in ranks.waits_s
            else None,
            pool,
        )
        for name, rows in ranks.phases_s.items()
    ]


def phases_of_buckets(steps: StepBuckets, ranks: RankBuckets) -> list[str]:
    """Return the phases of both, in the order in which they are stacked."""
    return sorted({*steps.phases_s, *ranks.phases_s, UNATTRIBUTED}, key=order_of)


def shares(steps: StepBuckets) -> tuple[int, list[tuple[str, float, float]]]:
    """Return over how many steps the means are, and of each phase its share and that of its wait.

    Steps that the summary leaves out (warm-up, for example) are left out here too, unless there
    are no others.
    """
    chosen = [at for at, bucket in enumerate(steps.buckets) if bucket.used]
    chosen = chosen or list(range(len(steps.buckets)))
    totals = {name: _sum(values, chosen, steps) for name, values in steps.phases_s.items()}
    waits = {name: _sum(values, chosen, steps) for name, values in steps.waits_s.items()}
    all_s = _sum(steps.seconds, chosen, steps)
    if all_s <= 0:
        return 0, []
    count = sum(steps.buckets[at].steps for at in chosen)
    return count, [(n, totals[n] / all_s, waits.get(n, 0.0) / all_s) for n in totals]


def _sum(values: Numbers, chosen: list[int], steps: StepBuckets) -> float:
    return sum((values[at] or 0.0) * steps.buckets[at].steps for at in chosen)


def _stack(
    phase: int, values: Numbers, waits: Numbers | None, pool: NumberPool
) -> dict[str, int | None]:
    has_waits = waits is not None and any(waits)
    return {
        "phase": phase,
        "v": pool.add(values),
        "wait": pool.add(waits) if waits is not None and has_waits else None,
    }
