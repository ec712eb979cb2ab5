"""Who keeps the others waiting, and what that rank does longer than they."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.accounting import ROLLOUT_WAIT_SPAN, Table
from grpo_doctor.analysis.chains import Shares, root_causes, same_group_before
from grpo_doctor.analysis.rows import CODES, UNATTRIBUTED_CODE, RankRows
from grpo_doctor.analysis.steps import NS_PER_S, Steps
from grpo_doctor.analysis.waits import Waits
from grpo_doctor.phases import PHASES
from grpo_doctor.trace.intervals import Intervals, Times, covered_before, subtract, union
from grpo_doctor.trace.model import Kind, Trace

# What one rank does for all by design: who waits for that waits for the duty, not for a slow rank.
DUTY_PHASES = ("checkpoint", "eval")
# Logs, as the bundled trainer, ms-swift and transformers call them.
DUTY_SPANS = ("reward/log_completions", "rollout/log_completions", "optimizer/log")


@dataclass(frozen=True, slots=True)
class Blame:
    """Waiting within the used steps, by who caused it. R ranks, U used steps.

    `waited_s` sums all ranks' waits. `explained_s` (R,) is the part that would vanish if that rank
    came together with the next to last: a rank that is late only next to another one explains
    little, and one that is late because it waited itself explains only the rest.
    `late_share` (R,) is the share of used steps in which that part passes 1% of the step.
    In none of them is the part of a wait that is for a duty of one rank: see `duties`.
    """

    waited_s: float
    explained_s: NDArray[np.float64]
    late_share: NDArray[np.float64]

    @property
    def shares(self) -> NDArray[np.float64]:
        """Shape (R,): the share of wait time that each rank causes."""
        return self.explained_s / self.waited_s if self.waited_s else self.explained_s


_NOTICEABLE = 0.01
# Phases in which less of the others' waiting lies are not named.
_LITTLE = 0.10
# Waits below a thousandth of a step are left with the last arriver: following them costs more than
# they can say.
_WORTH_FOLLOWING = 0.001


def duties(trace: Trace, mains: Sequence[RankRows], waits: Waits) -> tuple[Intervals, ...]:
    """When each rank was at checkpoints, evaluations, logs, waited for samples of a rollout next to
    the training, or alone sent weights to an engine of its own, without its waits for others."""
    spans, run = trace.spans, trace.run
    beside = ROLLOUT_WAIT_SPAN in trace.names
    names = [trace.names.index(n) for n in (*DUTY_SPANS, ROLLOUT_WAIT_SPAN) if n in trace.names]
    # There the first rank alone sends the weights, to engines in processes of their own.
    alone = beside or run.framework == "openrlhf" or run.facts.get("vllm.mode") == "server"
    busy = []
    for index, (main, waited) in enumerate(zip(mains, waits.per_rank, strict=True)):
        sends = index == 0 and alone
        phases = [CODES[phase] for phase in (*DUTY_PHASES, *["sync"] * sends)]
        is_duty = np.isin(main.phase, phases) | np.isin(spans.name[main.rows], names)
        rows = main.rows[is_duty & (spans.kind[main.rows] == Kind.SPAN)]
        busy.append(subtract(union(spans.start_ns[rows], spans.end_ns[rows]), waited).intervals)
    return tuple(busy)


def find_blame(steps: Steps, waits: Waits, at_duty: Sequence[Intervals]) -> Blame:
    """Sum the claims within the used steps. Does not depend on the order of ranks."""
    ranks, claims = len(steps.stepping), waits.claims
    step = steps.of(claims.waiter, claims.start_ns, used=True)
    usual = float(steps.used_seconds.mean()) if len(steps.used) else 0.0
    shares = root_causes(waits, at_least_ns=_WORTH_FOLLOWING * usual * NS_PER_S)
    excused_ns = _for_duties(waits, shares, at_duty)
    inside = step[shares.claim] >= 0
    cell = step[shares.claim[inside]] * ranks + claims.culprit[shares.root[inside]]
    explained = (shares.amount_ns - excused_ns)[inside] / NS_PER_S
    size = len(steps.numbers) * ranks
    sums = np.bincount(cell, weights=explained, minlength=size)
    table = sums.reshape(len(steps.numbers), ranks)[steps.used]
    noticeable = table > _NOTICEABLE * steps.used_seconds[:, None]
    waited_ns = (claims.end_ns - claims.start_ns)[step >= 0].sum() - excused_ns[inside].sum()
    return Blame(
        waited_s=float(waited_ns) / NS_PER_S,
        explained_s=table.sum(axis=0),
        late_share=noticeable.mean(axis=0) if len(table) else np.zeros(ranks),
    )


def _for_duties(waits: Waits, shares: Shares, at_duty: Sequence[Intervals]) -> Times:
    """The part of each share for which the culprit was longer at duties than who waited for it,
    since both last met."""
    claims, arrivals = waits.claims, waits.arrivals
    collective = claims.collective[shares.root]
    came_ns = arrivals.last_ns[collective]
    barriers_ns = np.concatenate([[np.iinfo(np.int64).min], waits.barriers_ns])
    barrier_ns = barriers_ns[np.searchsorted(barriers_ns, came_ns, side="left") - 1]
    since_ns = np.maximum(same_group_before(arrivals)[collective], barrier_ns)
    longer_ns = np.zeros(len(collective), dtype=np.int64)
    for party, sign in ((claims.culprit, 1), (claims.waiter, -1)):
        columns = party[shares.root]
        order = np.argsort(columns, kind="stable")  # once: 10,000 ranks have millions of claims
        ends = np.searchsorted(columns[order], np.arange(1, len(at_duty)))
        for busy, mine in zip(at_duty, np.split(order, ends)):
            begun_ns = covered_before(busy, since_ns[mine])
            longer_ns[mine] += sign * (covered_before(busy, came_ns[mine]) - begun_ns)
    return np.clip(longer_ns, 0, shares.amount_ns)


def waited_in(waited: Table, rank: int) -> tuple[str, ...]:
    """The phases in which ranks other than this column spend most of their waits, the most first;
    `waited` has shape (used steps, ranks, columns)."""
    seconds = np.delete(waited, rank, axis=1)[:, :, :UNATTRIBUTED_CODE].sum(axis=(0, 1))
    order = np.argsort(-seconds)
    return tuple(PHASES[code] for code in order if seconds[code] > _LITTLE * seconds.sum())


def work_above_others(work: Table, rank: int) -> NDArray[np.float64]:
    """Return how much longer one rank works in each phase than its peers, in seconds per step.

    Args:
        work: shape (used steps, ranks, columns).
        rank: the column of the rank.

    Returns:
        Shape (columns,): the mean over steps of its work less the median of the others'.
    """
    peers = np.delete(work, rank, axis=1)
    if not peers.size:
        return np.zeros(work.shape[2])
    excess: NDArray[np.float64] = (work[:, rank] - np.median(peers, axis=1)).mean(axis=0)
    return excess
