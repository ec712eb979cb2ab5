"""The bench's results as a page: `benchmarks/results/accuracy.md`."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from operator import attrgetter

from tests.faults import first_pass
from tests.faults.baselines import Other
from tests.faults.healthy import Calm
from tests.faults.results import Results
from tests.faults.score import ROUNDS, Answer, Outcome, median, ninth_decile, share

_HEAD = """\
# How often `attach` is right

Written by `{command}` on {day}: {machine}, kernel {kernel}, Python {python}, torch {torch},
py-spy {py_spy}. Every case is a real job of gloo ranks that trains for a while, until something
real is done to it. 6 to 10 s later `grpo-doctor attach` runs as a command of its own, with the PID
of a rank that is not to blame, or in some cases (*torchrun*, *trainer*) with no arguments at all.
Which rank is to blame and at which step is drawn.

- **detected**: the state is one that is true of the job (*slow* counts where the fault is slowness,
  or work of which nobody can know yet whether it ends);
- **culprit**: a rank is named, and no rank that is not to blame;
- **class**: the class is one that an engineer would accept for this fault; mostly there is one.

`tests/faults/families` has what was done and which answers are right. *Foreseen* are the faults
with which the causes were written. The *unforeseen* ones, and later the *held out* ones, were
written afterwards, from reports of hung jobs, by people who had not read how `attach` reasons, with
their right answers fixed before it saw the faults. *First pass* is what the version of that day
({commits}) said of them, recorded once; what it missed has been fixed since, so *now* says less
about the next new fault than a first pass does.
"""
_BINS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.001)
_ATTRIBUTES = ("detected", "culprit_right", "class_right")
_OTHER_ATTRIBUTES = ("top_frame_right", "torchfrtrace_right")


def page(results: Results, command: str) -> str:
    """Everything, as Markdown."""
    outcomes = [outcome for outcome in results.outcomes if not outcome.skipped]
    parts = [_head(command), _totals(outcomes, results.calm)]
    if outcomes:
        parts += [
            _others(outcomes),
            _by_class(outcomes),
            _by_size(outcomes),
            _calibration(outcomes),
        ]
    if results.calm:
        parts.append(_healthy(results.calm))
    if outcomes:
        parts.append(_cases(outcomes))
    skipped = [f"- {o.name}: {o.skipped}\n" for o in results.outcomes if o.skipped]
    if skipped:
        parts.append("## Not run here\n\n" + "".join(skipped))
    again = [f"- {o.name}: {o.retried}\n" for o in results.outcomes if o.retried]
    if again:
        parts.append("## Injected a second time\n\n" + "".join(again))
    return "\n".join(part for part in parts if part)


def _head(command: str) -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return _HEAD.format(
        command=command,
        commits=", then ".join(map(first_pass.commit, ROUNDS)),
        day=time.strftime("%Y-%m-%d"),
        machine=f"{os.cpu_count()} cores, {memory:.0f} GiB, no GPU",
        kernel=platform.release(),
        python=platform.python_version(),
        torch=version("torch"),
        py_spy=version("py-spy"),
    )


def _totals(outcomes: Sequence[Outcome], calm: Sequence[Calm]) -> str:
    kinds = _kinds(outcomes)
    rows = [[title, *map(of, kinds.values())] for title, of in _measures()] if outcomes else []
    if calm:
        attaches = sum(len(control.answers) for control in calm)
        alarms = sum(len(control.alarms()) for control in calm)
        empty = [""] * (len(kinds) - 1)
        rows.append(["`stuck` or `dead` said of a healthy job", f"{alarms} of {attaches}", *empty])
    return "## Totals\n\n" + _table(["", *kinds], rows)


def _kinds(outcomes: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """All cases, and apart those that nobody foresaw, where there are both."""
    kinds = {"all": list(outcomes)}
    foreseen = [outcome for outcome in outcomes if not outcome.round]
    if foreseen and len(foreseen) < len(outcomes):
        kinds["foreseen"] = foreseen
        for name in ROUNDS:
            title = name.replace("_", " ")
            kinds[f"{title}, first pass"] = first_pass.outcomes(name)
            kinds[f"{title}, now"] = [outcome for outcome in outcomes if outcome.round == name]
    return kinds


def _measures() -> list[tuple[str, Callable[[Sequence[Outcome]], str]]]:
    shares = (
        ("detected", "detected"), ("culprit right", "culprit_right"),
        ("class right", "class_right"), ("all three right", "right"),
    )  # fmt: skip
    return [
        ("cases", lambda outcomes: str(len(outcomes))),
        *((title, partial(_share_of, attribute)) for title, attribute in shares),
        ("seconds, median / 90% within", _seconds),
        ("longest pause of a thread, median / most", _pauses),
    ]


def _share_of(attribute: str, outcomes: Sequence[Outcome]) -> str:
    return _percent(share(outcomes, attrgetter(attribute)))


def _others(outcomes: Sequence[Outcome]) -> str:
    compared = [o for o in outcomes if o.top_frame is not None and o.torchfrtrace is not None]
    if not compared:
        return ""
    crashes = share(compared, lambda o: _said(o.torchfrtrace).startswith("crash"))
    rows = [
        ["`grpo-doctor attach`", _percent(share(compared, lambda o: o.culprit_right)), ""],
        [
            "py-spy on every rank: the odd top frame of user code is to blame",
            _percent(share(compared, lambda o: o.top_frame_right)),
            "is told the ranks' PIDs; no class",
        ],
        [
            "torchfrtrace, on the flight recorders that `attach` took",
            _percent(share(compared, lambda o: o.torchfrtrace_right)),
            f"ends with an exception in {_percent(crashes)}",
        ],
    ]
    return "The same cases by other means:\n\n" + _table(["", "culprit right", ""], rows)


def _by_class(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for name in sorted({outcome.classes[0] for outcome in outcomes}):
        of_class = [outcome for outcome in outcomes if outcome.classes[0] == name]
        right = [_percent(share(of_class, attrgetter(attribute))) for attribute in _ATTRIBUTES]
        compared = [outcome for outcome in of_class if outcome.top_frame is not None]
        right += [
            _share_of(attribute, compared) if compared else "-" for attribute in _OTHER_ATTRIBUTES
        ]
        seconds, pauses = _seconds(of_class), _pauses(of_class)
        rows.append([f"`{name}`", str(len(of_class)), *right, seconds, pauses])
    titles = ["class", "cases", "detected", "culprit", "class", "top frame", "torchfrtrace"]
    return "## By class\n\n" + _table([*titles, "seconds", "pause"], rows)


def _by_size(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for size in sorted({outcome.world_size for outcome in outcomes}):
        of_size = [outcome for outcome in outcomes if outcome.world_size == size]
        rows.append([str(size), str(len(of_size)), _seconds(of_size), _pauses(of_size)])
    titles = ["ranks", "cases", "seconds, median / 90% within", "pause, median / most"]
    return "## By size\n\n" + _table(titles, rows)


def _calibration(outcomes: Sequence[Outcome]) -> str:
    """Of the verdicts with so much confidence, how many are right."""
    answered = [(o, o.answer.confidence) for o in outcomes if o.answer and o.answer.state]
    rows = []
    for low, high in pairwise(_BINS):
        inside = [(o, confidence) for o, confidence in answered if low <= confidence < high]
        if inside:
            mean = 100 * sum(confidence for _, confidence in inside) / len(inside)
            right = share([o for o, _ in inside], lambda o: o.culprit_right and o.class_right)
            bounds = f"{low:.2f} to {min(high, 1.0):.2f}"
            rows.append([bounds, str(len(inside)), _percent(mean), _percent(right)])
    titles = ["confidence", "verdicts", "mean confidence", "culprit and class right"]
    return "## What the confidence is worth\n\n" + _table(titles, rows)


def _healthy(calm: Sequence[Calm]) -> str:
    rows = []
    for control in calm:
        states = control.states()
        counts = (len(control.answers), states["healthy"], states["slow"], len(control.alarms()))
        nothing = str(states["no answer"])
        seconds = f"{median(answer.seconds for answer in control.answers):.1f}"
        rows.append([control.name, str(control.world_size), *map(str, counts), nothing, seconds])
    titles = ["job", "ranks", "attaches", "healthy", "slow", "stuck or dead", "no answer"]
    return "## Jobs that nothing is wrong with\n\n" + _table([*titles, "median s"], rows)


def _cases(outcomes: Sequence[Outcome]) -> str:
    titles = (
        "fault", "rank", "phase", "detected, culprit, class", "state", "class", "culprits",
        "confidence", "s", "pause, ms", "top frame blames", "torchfrtrace blames",
    )  # fmt: skip
    return "## Every case\n\n" + _table(titles, [_case(outcome) for outcome in outcomes])


def _case(outcome: Outcome) -> list[str]:
    answer = outcome.answer or Answer(-1, 0.0)
    right = (outcome.detected, outcome.culprit_right, outcome.class_right)
    return [
        outcome.name, f"{outcome.culprit} of {outcome.world_size}", outcome.phase,
        "".join("✓" if mark else "✗" for mark in right), answer.state or "none", answer.cause,
        _ranks(answer.culprits), f"{answer.confidence:.2f}", f"{answer.seconds:.1f}",
        f"{answer.pause_ms:.0f}", _other(outcome.top_frame), _other(outcome.torchfrtrace),
    ]  # fmt: skip


def _ranks(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks)) or "none"


def _said(other: Other | None) -> str:
    return other.said if other else ""


def _other(other: Other | None) -> str:
    return _ranks(other.blamed) if other and other.blamed else _said(other).partition(":")[0]


def _seconds(outcomes: Sequence[Outcome]) -> str:
    return _spread(outcomes, lambda answer: answer.seconds, ninth_decile, "{:.1f} / {:.1f}")


def _pauses(outcomes: Sequence[Outcome]) -> str:
    return _spread(outcomes, lambda answer: answer.pause_ms, max, "{:.1f} / {:.1f} ms")


def _spread(
    outcomes: Sequence[Outcome],
    of: Callable[[Answer], float],
    upper: Callable[[list[float]], float],
    shape: str,
) -> str:
    values = [of(outcome.answer) for outcome in outcomes if outcome.answer and outcome.answer.state]
    return shape.format(median(values), upper(values)) if values else "-"


def _percent(value: float) -> str:
    return f"{value:.0f}%"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
