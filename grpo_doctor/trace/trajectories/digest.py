"""From the rows of a run's trajectories to what is kept of them.

Everywhere a row number stands for a trajectory, and times are of the trace's clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.trace.intervals import Intervals, Times, covered_within, intersect, union
from grpo_doctor.trace.trajectories.around import Surroundings
from grpo_doctor.trace.trajectories.table import Table
from grpo_doctor_probes.record import layout
from grpo_doctor_probes.record.trajectories import (
    ABORTED,
    DECODE,
    DONE,
    ENGINE_QUEUE,
    EVALUATION,
    GENERATE,
    OPEN,
    PAUSED,
    PREFILL,
    QUEUE,
    TIMED_OUT,
)
from grpo_doctor_reports.schema import trajectories

Rows = NDArray[np.intp]
Numbers = NDArray[np.float64]

# Of parts that overlap the first owns the moment: a request waits for a server within itself.
_OWNERS = ("tool", "reward", QUEUE, PAUSED, ENGINE_QUEUE, PREFILL, DECODE, GENERATE)
_ENGINE = tuple(map(_OWNERS.index, (ENGINE_QUEUE, PREFILL, DECODE)))
_ASKING = (*_ENGINE, _OWNERS.index(GENERATE))  # the engine, which may be paused meanwhile
SLOWEST, FAILED, TYPICAL = 50, 20, 10
_MOST_PARTS = 200  # of one trajectory that is shown
_MOST_TOOLS = 100
_MOST_STEPS = 1000
_TAIL = 0.1  # of all trajectories, the slowest
_NUMBERS = ("group", "sample", "step", "version", "last_version", "tokens", "reward")


def digest(table: Table, around: Surroundings) -> trajectories.Trajectories:
    """Return the distributions of all trajectories, and some in full."""
    return _Digest(table, around).result()


class _Digest:
    """Columns with one entry for each trajectory, by the time that it began to be recorded."""

    def __init__(self, table: Table, around: Surroundings) -> None:
        self.around = around
        facts = table.select(table.kind == layout.FACT)
        takes = facts.select(facts.called("taken"))
        left_out = np.append(takes.of, _evaluated(facts, takes))
        whole = table.select((table.kind == layout.TRAJECTORY) & ~np.isin(table.of, left_out))
        self.ids, first = np.unique(whole.of, return_index=True)
        self.start_ns, self.value = whole.start_ns[first], whole.value[first]
        self.ready_ns = np.maximum(whole.end_ns[first], self.start_ns)
        self.length_s = (self.ready_ns - self.start_ns) / 1e9
        named = {name: facts.select(facts.called(name)) for name in _NUMBERS}
        self.facts = {n: _column(self.ids, rows.of, rows.value) for n, rows in named.items()}
        self.parts = table.select((table.kind == layout.PART) & ~np.isin(table.of, left_out))
        self.row = _rows(self.ids, _asking(facts, self.parts.of))
        self.is_open = self.parts.value == OPEN
        self.failed = ~self.is_open & (self.parts.value != DONE)
        self.owners = np.array([_owner(name) for name in self.parts.names] or [-1])
        self.aborted = np.isin(self.owners[self.parts.name], _ENGINE) & (self.row >= 0)
        self.aborted &= self.parts.value == ABORTED
        self.is_tool = table.begins("tool/")[self.parts.name]
        self._take(facts, takes)
        self.runs = self._runs()
        self.spent = self._spent()
        self.outcome = self._outcomes()
        self.by_length = np.argsort(-self.length_s, kind="stable")
        self.tail = self.by_length[: -(-len(self.ids) // round(1 / _TAIL))]

    def _take(self, facts: Table, takes: Table) -> None:
        """When and in which step the trainer took each, or why that was dropped."""
        numbers = np.unique(takes.of)
        reasons = facts.select(facts.begins("dropped/")[facts.name])
        steps, stale, versions = (
            facts.select(facts.called(name)) for name in ("step", "staleness", "version")
        )
        columns = [
            _column(numbers, rows.of, values)
            for rows, values in (
                (takes, takes.start_ns), (steps, steps.value), (stale, stale.value),
                (versions, versions.value), (reasons, reasons.name),
            )
        ]  # fmt: skip
        puts = facts.select(facts.called("put"))
        at = _found(takes.value, puts.value)
        met = (at >= 0) & (_rows(self.ids, puts.of) >= 0)
        took = _rows(numbers, takes.of[at[met]])
        self.takes_seen = bool(len(numbers))
        taken_ns, self.taken_step, self.staleness, trained, reason = (
            _column(self.ids, puts.of[met], column[took]) for column in columns
        )
        self.taken_ns = np.nan_to_num(taken_ns, nan=-1).astype(np.int64)
        own = _column(self.ids, reasons.of, reasons.name)
        self.reason = np.where(np.isnan(own), reason, own)
        # Step N trains weights that have been updated N - 1 times.
        trained = np.where(np.isnan(trained), self.taken_step - 1, trained)
        behind = trained - self.facts["last_version"]
        self.staleness = np.where(np.isnan(self.staleness), behind, self.staleness)

    def _outcomes(self) -> NDArray[Any]:
        words = np.full(len(self.ids), "waiting" if self.takes_seen else "ready", dtype=object)
        words[self.taken_ns >= 0] = "trained"
        dropped = ~np.isnan(self.reason)
        reasons = self.reason[dropped].astype(int)
        words[dropped] = [f"dropped: {self.parts.names[i].partition('/')[2]}" for i in reasons]
        words[self.value > DONE] = "failed"
        words[self.value == OPEN] = "open"
        return words

    def _runs(self) -> tuple[Rows, NDArray[Any], Times, Times]:
        """Return stretches of one owner each, disjoint, by trajectory and time."""
        owner = self.owners[self.parts.name]
        used = (self.row >= 0) & (owner >= 0)
        row = self.row[used]
        low, high = self.start_ns[row], self.ready_ns[row]
        start_ns = self.parts.start_ns[used].clip(low, high)
        end_ns = self.parts.end_ns[used].clip(start_ns, high)
        return _owned(row, owner[used], start_ns, end_ns)

    def _spent(self) -> Numbers:
        """Return seconds by trajectory and state."""
        row, owner, start_ns, end_ns = self.runs
        asking = np.isin(owner, _ASKING)
        frozen_ns = np.where(asking, covered_within(self.around.paused, start_ns, end_ns), 0)
        own_ns = end_ns - start_ns - frozen_ns
        spent = {
            state: np.bincount(row[mine], own_ns[mine], len(self.ids)) / 1e9
            for code, state in enumerate(_OWNERS)
            for mine in [owner == code]
        }
        spent[PAUSED] += np.bincount(row, frozen_ns, len(self.ids)) / 1e9
        spent["other"] = self.length_s - sum(spent.values())
        spent["buffer"] = (self.taken_ns - self.ready_ns).clip(min=0) / 1e9
        return np.stack([spent[state].clip(min=0.0) for state in trajectories.STATES], axis=1)

    def result(self) -> trajectories.Trajectories:
        words, counts = np.unique(self.outcome.astype(str), return_counts=True)
        ended = self.length_s[self.value != OPEN]
        known = self.staleness[~np.isnan(self.staleness)]
        tools = sorted(self._tools(), key=lambda tool: (-tool.seconds, tool.name))
        return trajectories.Trajectories(
            count=len(self.ids),
            outcomes=dict(zip(words.tolist(), counts.tolist())),
            seconds=_spread(ended),
            tail_seconds=_short(self.length_s[self.tail].sum()),
            states={s: _spread(c) for s, c in zip(trajectories.STATES, self.spent.T) if c.any()},
            staleness=_spread(known) if len(known) else None,
            aborted_requests=int(self.aborted.sum()),
            tools=tools[:_MOST_TOOLS],
            tools_left_out=len(tools[_MOST_TOOLS:]),
            flow=self._flow(),
            syncs=self._syncs(),
            shown=list(self._shown()),
        )

    def _tools(self) -> Iterator[trajectories.ToolEntry]:
        parts, in_tail = self.parts, np.isin(self.row, self.tail)
        mine = np.flatnonzero(self.is_tool)
        mine = mine[np.argsort(parts.name[mine], kind="stable")]
        names, starts = np.unique(parts.name[mine], return_index=True)
        for name, rows in zip(names, np.split(mine, starts[1:])):
            ended = rows[~self.is_open[rows]]
            lengths = (parts.end_ns - parts.start_ns)[ended] / 1e9
            p50, p99 = np.percentile(lengths, [50, 99]) if len(ended) else (0.0, 0.0)
            late = parts.value[ended] == TIMED_OUT
            yield trajectories.ToolEntry(
                name=parts.names[name].partition("/")[2],
                calls=len(ended),
                errors=int((self.failed[ended] & ~late).sum()),
                time_outs=int(late.sum()),
                open=len(rows) - len(ended),
                seconds=_short(lengths.sum()),
                failed_seconds=_short(lengths[self.failed[ended]].sum()),
                p50_s=_short(p50),
                p99_s=_short(p99),
                longest_s=_short(lengths.max(initial=0.0)),
                tail_seconds=_short(lengths[in_tail[ended]].sum()),
                saved_s=self._saved_s(self.row[ended], lengths - p50),
            )

    def _saved_s(self, row: Rows, excess_s: Numbers) -> float | None:
        """Return how much earlier a batch's last trajectory is ready without that excess."""
        # A step that trains what its own weights alone have said waits for the last of them.
        is_own = (self.staleness == 0) & (self.facts["version"] == self.facts["last_version"])
        batch = np.where(is_own, self.taken_step, np.nan)
        batch = np.where(np.isnan(self.facts["step"]), batch, self.facts["step"])
        known = np.isfinite(batch) & (self.value == DONE)
        if not known.any():
            return None
        own = row >= 0
        less_s = np.bincount(row[own], excess_s[own].clip(min=0.0), len(self.ids))
        less_s = np.minimum(less_s, self.spent[:, trajectories.STATES.index("tool")])
        sooner_ns = self.ready_ns - (1e9 * less_s).astype(np.int64)
        _, group = np.unique(batch[known], return_inverse=True)
        last_ns, sooner_last_ns = np.zeros((2, int(group.max()) + 1), np.int64)
        np.maximum.at(last_ns, group, self.ready_ns[known])
        np.maximum.at(sooner_last_ns, group, sooner_ns[known])
        return _short((last_ns - sooner_last_ns).mean() / 1e9)

    def _flow(self) -> trajectories.Flow:
        every = -(-len(self.around.steps) // _MOST_STEPS) or 1
        numbers, starts_ns = self.around.steps[::every], self.around.step_starts_ns[::every]
        if not len(numbers):
            return trajectories.Flow()
        produced = _per_step(self.ready_ns[self.value != OPEN], starts_ns)
        if not self.takes_seen:
            return trajectories.Flow(steps=numbers.tolist(), produced=produced.tolist())
        dropped = ~np.isnan(self.reason)
        left_ns = np.where(self.taken_ns >= 0, self.taken_ns, self.ready_ns)
        trained = _per_step(left_ns[~dropped & (self.taken_ns >= 0)], starts_ns)
        lost = _per_step(left_ns[dropped], starts_ns)
        return trajectories.Flow(
            steps=numbers.tolist(),
            produced=produced.tolist(),
            trained=trained.tolist(),
            dropped=lost.tolist(),
            waiting=np.cumsum(produced - trained - lost).clip(min=0).tolist(),
        )

    def _syncs(self) -> trajectories.Syncs:
        around, (_, owner, start_ns, end_ns) = self.around, self.runs
        busy = np.isin(owner, [*_ASKING, _OWNERS.index("tool")])
        busy &= covered_within(around.paused, start_ns, end_ns) == 0
        waits = union(
            np.concatenate([start_ns[busy], around.pausing.start_ns]),
            np.concatenate([end_ns[busy], around.pausing.end_ns]),
        )
        parts = (waits, around.sending, around.resuming)
        within = [float(intersect(around.syncs, w).total_ns / 1e9) for w in parts]
        return trajectories.Syncs(
            seconds=around.syncs.total_ns / 1e9,
            waiting_s=within[0],
            transfer_s=within[1] if len(around.sending.start_ns) else None,
            load_s=within[2] if len(around.resuming.start_ns) else None,
        )

    def _shown(self) -> Iterator[trajectories.Shown]:
        own = self.row >= 0
        masks = {
            "requests": self.parts.called(GENERATE), "calls": self.is_tool,
            "failed_calls": self.is_tool & self.failed, "aborted_requests": self.aborted,
        }  # fmt: skip
        counted = {
            name: np.bincount(self.row[own & mask], minlength=len(self.ids))
            for name, mask in masks.items()
        }
        ended = self.by_length[self.value[self.by_length] != OPEN]
        worse = (self.value > DONE) * 2 + (counted["failed_calls"] > 0)
        broken = self.by_length[np.argsort(-worse[self.by_length], kind="stable")]
        middle = max(0, (len(ended) - TYPICAL) // 2)
        chosen = {
            "slowest": self.by_length[:SLOWEST],
            "failed": broken[worse[broken] > 0][:FAILED],
            "typical": ended[middle : middle + TYPICAL],
        }
        for why, rows in chosen.items():
            for row in rows.tolist():
                yield self._in_full(row, why, {name: int(c[row]) for name, c in counted.items()})

    def _in_full(self, row: int, why: str, counted: dict[str, int]) -> trajectories.Shown:
        parts = list(self._parts_of(row))
        step, staleness = float(self.taken_step[row]), float(self.staleness[row])
        numbers = {name: float(column[row]) for name, column in self.facts.items()}
        return trajectories.Shown(
            why=why,
            outcome=str(self.outcome[row]),
            start_s=_short(self.start_ns[row] / 1e9),
            seconds=_short(self.length_s[row]),
            states={s: _short(v) for s, v in zip(trajectories.STATES, self.spent[row]) if v > 0},
            numbers={name: value for name, value in numbers.items() if np.isfinite(value)},
            **counted,
            taken_step=None if np.isnan(step) else int(step),
            staleness=None if np.isnan(staleness) else staleness,
            parts=parts[:_MOST_PARTS],
            parts_left_out=len(parts[_MOST_PARTS:]),
        )

    def _parts_of(self, row: int) -> Iterator[trajectories.PartShown]:
        of, owner, start_ns, end_ns = self.runs
        first, last = np.searchsorted(of, [row, row + 1]).tolist()
        calls = np.flatnonzero((self.row == row) & self.is_tool)
        zero_ns = int(self.start_ns[row])
        for at in range(first, last):
            state, begin, end = _OWNERS[owner[at]], int(start_ns[at]), int(end_ns[at])
            name, failed = "", False
            if state == "tool":
                during = calls[self.parts.start_ns[calls] <= begin]
                during = during[self.parts.end_ns[during] > begin]
                name = self.parts.names[self.parts.name[during[0]]].partition("/")[2]
                failed = bool(self.failed[during].any())
            pieces = (
                _split(self.around.paused, begin, end)
                if owner[at] in _ASKING
                else [(begin, end, False)]
            )
            for low, high, frozen in pieces:
                yield trajectories.PartShown(
                    state=PAUSED if frozen else state,
                    start_s=_short((low - zero_ns) / 1e9),
                    end_s=_short((high - zero_ns) / 1e9),
                    name=name,
                    failed=failed,
                )
        if self.spent[row, trajectories.STATES.index("buffer")]:
            ready_s, taken_s = float(self.length_s[row]), (int(self.taken_ns[row]) - zero_ns) / 1e9
            yield trajectories.PartShown(state="buffer", start_s=ready_s, end_s=taken_s)


def _evaluated(facts: Table, takes: Table) -> NDArray[np.int64]:
    """Return the trajectories of which the trainer says that they were of an evaluation."""
    marks = facts.of[facts.called(f"dropped/{EVALUATION}")]
    puts = facts.select(facts.called("put"))
    return puts.of[np.isin(puts.value, takes.value[np.isin(takes.of, marks)])]


def _asking(facts: Table, of: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return whose part each is: of what an engine did for a request, theirs who asked for it."""
    asks, serves = (facts.select(facts.called(name)) for name in ("asked", "serves"))
    at = _found(asks.value, serves.value)
    place = _found(serves.of[at >= 0], of)
    return np.where(place >= 0, np.append(asks.of[at[at >= 0]], 0)[place], of)


def _split(inside: Intervals, start_ns: int, end_ns: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the pieces of a stretch, each with whether it lies in the intervals."""
    at = start_ns
    first, last = np.searchsorted(inside.end_ns, start_ns), np.searchsorted(inside.start_ns, end_ns)
    for low, high in zip(inside.start_ns[first:last].tolist(), inside.end_ns[first:last].tolist()):
        if at < low:
            yield at, low, False
        at = min(high, end_ns)
        yield max(low, start_ns), at, True
    if at < end_ns:
        yield at, end_ns, False


def _owner(name: str) -> int:
    state = name.partition("/")[0]
    return _OWNERS.index(state) if state in _OWNERS else -1


def _owned(
    row: Rows, owner: NDArray[Any], start_ns: Times, end_ns: Times
) -> tuple[Rows, NDArray[Any], Times, Times]:
    """Return disjoint stretches by trajectory and time, from parts that may overlap.

    Between two neighboring edges of a trajectory's parts the first owner that is open has it all.
    """
    of, at_ns = np.concatenate([row, row]), np.concatenate([start_ns, end_ns])
    order = np.lexsort((at_ns, of))
    of, at_ns = of[order], at_ns[order]
    kind = np.concatenate([owner, owner])[order]
    change = np.repeat(np.array([1, -1], np.int32), len(row))[order]
    first = np.full(len(of), -1)
    for code in reversed(range(len(_OWNERS))):
        first[np.cumsum(np.where(kind == code, change, 0)) > 0] = code
    kept = np.flatnonzero((of[1:] == of[:-1]) & (first[:-1] >= 0) & (at_ns[1:] > at_ns[:-1]))
    return of[kept], first[kept], at_ns[kept], at_ns[kept + 1]


def _found(values: NDArray[Any], wanted: NDArray[Any]) -> Rows:
    """Return where the first that equals each of `wanted` is in `values`, -1 where none does."""
    order = np.argsort(values, kind="stable")
    return np.append(order, -1)[_rows(values[order], wanted)]


def _rows(numbers: NDArray[Any], of: NDArray[Any]) -> Rows:
    """Return where each of `of` is in ascending `numbers`, -1 where it is not."""
    if not len(numbers):
        return np.full(len(of), -1)
    at = np.searchsorted(numbers, of).clip(max=len(numbers) - 1)
    return np.where(numbers[at] == of, at, -1)


def _column(numbers: NDArray[np.int64], of: NDArray[np.int64], values: NDArray[Any]) -> Numbers:
    """Return the last value that is of each number; NaN for none."""
    column = np.full(len(numbers), np.nan)
    row = _rows(numbers, of)
    column[row[row >= 0]] = values[row >= 0]
    return column


def _per_step(moments_ns: Times, starts_ns: Times) -> NDArray[np.int64]:
    """Count moments by step; what was before the first is of the first."""
    at = (np.searchsorted(starts_ns, moments_ns, side="right") - 1).clip(min=0)
    return np.bincount(at, minlength=len(starts_ns))


def _spread(values: Numbers) -> trajectories.Spread:
    if not len(values):
        return trajectories.Spread()
    p50, p90, p99 = map(_short, np.percentile(values, [50, 90, 99]).tolist())
    return trajectories.Spread(total=_short(values.sum()), p50=p50, p90=p90, p99=p99)


def _short(value: float) -> float:
    """Return seconds to the microsecond."""
    return round(float(value), 6)
