"""What a replay came to, as text: shares by family, what is wrong, what has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tests.corpus.score import Answer

_COLUMNS = ("jobs", "state", "culprit", "class", "all three")


def by_family(answers: Sequence[Answer]) -> str:
    """How many jobs there are of each family, and in how many of them what is right."""
    groups: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        name = (
            answer.source if answer.family == answer.source else f"{answer.source}: {answer.family}"
        )
        groups[name].append(answer)
    rows = [_row(name, group) for name, group in groups.items()]
    titles = f"{'':34}" + "".join(f"{title:>11}" for title in _COLUMNS)
    return "\n".join([titles, *rows, _row("all", answers)]) + "\n"


def _row(name: str, group: Sequence[Answer]) -> str:
    counts = [
        len(group), sum(answer.state_right for answer in group),
        sum(answer.culprit_right for answer in group), sum(answer.cause_right for answer in group),
        sum(answer.right for answer in group),
    ]  # fmt: skip
    return f"{name:34}" + "".join(f"{count:>11}" for count in counts)


def wrong(answers: Sequence[Answer]) -> str:
    """Every job that is answered wrongly: what was said, what is true."""
    return "".join(
        f"{answer.marks} {answer.name}\n{_said(answer)}\n{_true(answer)}\n"
        for answer in answers
        if not answer.right
    )


def changes(old: Sequence[Answer], new: Sequence[Answer]) -> str:
    """What is said otherwise than before, and the jobs that only one of the two has."""
    before = {(answer.source, answer.name): answer for answer in old}
    after = {(answer.source, answer.name): answer for answer in new}
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
    common = len(before.keys() & after.keys())
    count = sum(1 for line in lines if not line.startswith("  "))
    lines.append(f"{count} of {common} differ, {better} right now, {worse} wrong now")
    return "".join(lines) + (f"; {alone} are in one of the two only\n" if alone else "\n")


def _turn(was: Answer, is_now: Answer) -> str:
    if was.right == is_now.right:
        return "other" if is_now.right else "other, wrong as before"
    return "BETTER" if is_now.right else "WORSE"


def _verdict(answer: Answer) -> tuple[object, ...]:
    return answer.state, answer.cause, answer.culprits


def _said(answer: Answer) -> str:
    first = answer.summary if answer.state == "error" else answer.summary.partition("\n")[0]
    ranks = list(answer.culprits)
    return f"    {answer.state} {answer.cause} {ranks} {answer.confidence:.2f} | {first}"


def _true(answer: Answer) -> str:
    truth = answer.wanted
    ranks = "any rank" if truth.culprits is None else list(truth.culprits)
    classes = " or ".join(truth.classes) or "any class"
    return f"    true: {' or '.join(truth.states)}, {classes}, {ranks}"


def slowest(answers: Sequence[Answer], count: int = 3) -> str:
    """The processor time, and the jobs that took most of it."""
    top = sorted(answers, key=lambda answer: -answer.cpu_s)[:count]
    names = ", ".join(f"{answer.name} {answer.cpu_s:.2f} s" for answer in top)
    return f"{sum(answer.cpu_s for answer in answers):.1f} s of reasoning; most: {names}\n"
