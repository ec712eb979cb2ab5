"""What a replay came to, as text: shares by family, what is wrong, what has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tests.corpus.score import Answer

_COLUMNS = ("jobs", "state", "culprit", "class", "all three")


def by_family(answers: Sequence[Answer]) -> str:
    """How many jobs there are of each family, and in how many of them what is right."""
    groups: dict[str, list[Answer]] = defaultdict(list)
    for one in answers:
        name = one.source if one.family == one.source else f"{one.source}: {one.family}"
        groups[name].append(one)
    rows = [_row(name, group) for name, group in groups.items()]
    titles = f"{'':34}" + "".join(f"{title:>11}" for title in _COLUMNS)
    return "\n".join([titles, *rows, _row("all", answers)]) + "\n"


def _row(name: str, group: Sequence[Answer]) -> str:
    counts = [
        len(group), sum(one.state_right for one in group), sum(one.culprit_right for one in group),
        sum(one.cause_right for one in group), sum(one.right for one in group),
    ]  # fmt: skip
    return f"{name:34}" + "".join(f"{count:>11}" for count in counts)


def wrong(answers: Sequence[Answer]) -> str:
    """Every job that is answered wrongly: what was said, what is true."""
    return "".join(
        f"{one.marks} {one.name}\n{_said(one)}\n{_true(one)}\n" for one in answers if not one.right
    )


def changes(old: Sequence[Answer], new: Sequence[Answer]) -> str:
    """What is said otherwise than before, and the jobs that only one of the two has."""
    before = {(one.source, one.name): one for one in old}
    after = {(one.source, one.name): one for one in new}
    lines = []
    better = worse = 0
    for key in sorted(before.keys() & after.keys()):
        was, is_now = before[key], after[key]
        if _verdict(was) != _verdict(is_now):
            better += is_now.right and not was.right
            worse += was.right and not is_now.right
            lines.append(f"{_turn(was, is_now)} {is_now.name}\n- {_said(was)}\n+ {_said(is_now)}\n")
            if not is_now.right:
                lines.append(f"  {_true(is_now)}\n")
    alone = len(before.keys() ^ after.keys())
    both = len(before.keys() & after.keys())
    count = sum(1 for line in lines if not line.startswith("  "))
    lines.append(f"{count} of {both} differ, {better} right now, {worse} wrong now")
    return "".join(lines) + (f"; {alone} are in one of the two only\n" if alone else "\n")


def _turn(was: Answer, is_now: Answer) -> str:
    if was.right == is_now.right:
        return "other" if is_now.right else "other, wrong as before"
    return "BETTER" if is_now.right else "WORSE"


def _verdict(one: Answer) -> tuple[object, ...]:
    return one.state, one.cause, one.culprits


def _said(one: Answer) -> str:
    first = one.summary if one.state == "error" else one.summary.partition("\n")[0]
    ranks = list(one.culprits)
    return f"    {one.state} {one.cause} {ranks} {one.confidence:.2f} | {first}"


def _true(one: Answer) -> str:
    truth = one.wanted
    ranks = "any rank" if truth.culprits is None else list(truth.culprits)
    classes = " or ".join(truth.classes) or "any class"
    return f"    true: {' or '.join(truth.states)}, {classes}, {ranks}"


def slowest(answers: Sequence[Answer], count: int = 3) -> str:
    """The processor time, and the jobs that took most of it."""
    most = sorted(answers, key=lambda one: -one.cpu_s)[:count]
    names = ", ".join(f"{one.name} {one.cpu_s:.2f} s" for one in most)
    return f"{sum(one.cpu_s for one in answers):.1f} s of reasoning; most: {names}\n"
