"""`accuracy`: 1 if the final answer of a completion equals the solution, 0 if not.

The final answer is, in this order, the content of the last `<answer>` element, of the last
`\\boxed{}`, or the last number. It is compared as a number where both sides are one, else as text.
"""

from __future__ import annotations

import re
from fractions import Fraction

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+)?%?")
# Fraction would gladly compute 10 ** 999999999 for a completion that says so.
_LONGEST_NUMBER = 60


def accuracy(
    completions: list[str], solution: list[object], **_columns: object
) -> list[float | None]:
    """Scores completions against their solutions; None where a row has no solution."""
    return [
        None if answer is None else float(is_correct(completion, str(answer)))
        for completion, answer in zip(completions, solution, strict=True)
    ]


def is_correct(completion: str, solution: str) -> bool:
    """Compares the final answer of a completion with that of a solution."""
    found = final_answer(completion)
    if found is None:
        return False
    if _plain(found) == _plain(solution):
        return True
    # A solution of one word is the answer itself: that of "\\frac{1}{2}" is not 2.
    alone = len(solution.split()) == 1 and not _is_marked(solution)
    expected = solution if alone else final_answer(solution) or solution
    return _plain(found) == _plain(expected) or _same_number(found, expected)


def final_answer(text: str) -> str | None:
    """Finds what a text gives as its answer, or None."""
    marked = _ANSWER.findall(text)
    if marked:
        return final_answer_of_marked(marked[-1])
    boxed = _last_boxed(text)
    if boxed is not None:
        return boxed.strip()
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else None


def final_answer_of_marked(content: str) -> str:
    """Takes the `\\boxed{}` inside an `<answer>` element if there is one, else all of it."""
    boxed = _last_boxed(content)
    return (content if boxed is None else boxed).strip()


def _is_marked(text: str) -> bool:
    return _ANSWER.search(text) is not None or _last_boxed(text) is not None


def _last_boxed(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    begin = start + len("\\boxed{")
    depth = 1
    for position in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin:position]
    return None


def _plain(text: str) -> str:
    return "".join(text.split()).strip("$.").casefold()


def _same_number(left: str, right: str) -> bool:
    a, b = _number(left), _number(right)
    return a is not None and a == b


def _number(text: str) -> Fraction | None:
    cleaned = _plain(text).replace(",", "").replace("\\%", "%")
    if len(cleaned) > _LONGEST_NUMBER or not _NUMBER.fullmatch(cleaned):
        return None
    try:
        value = Fraction(cleaned.rstrip("%"))
    except (ValueError, ZeroDivisionError):
        return None
    return value / 100 if cleaned.endswith("%") else value
