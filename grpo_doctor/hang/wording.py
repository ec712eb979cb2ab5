"""Ranks, times and places in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST_LISTED = 8  # runs of ranks in a sentence
MOST_HOSTS = 4


def ranks_text(ranks: Iterable[int]) -> str:
    """`rank 2`, `ranks 0, 1, 3`, `ranks 0-6, 8`, `ranks 0, 2, 4 ... 62 (32 ranks)`; "" for none."""
    distinct = set(ranks)
    if not distinct:
        return ""
    listed = runs(distinct, ", ").split(", ")
    text = ", ".join(listed)
    if len(listed) > MOST_LISTED:
        text = f"{', '.join(listed[:3])} ... {listed[-1]} ({len(distinct)} ranks)"
    return f"rank{'s' if len(distinct) > 1 else ''} {text}"


def runs(numbers: Iterable[int], between: str) -> str:
    """`0-6, 8`, in order. Runs of three or more are joined."""
    parts: list[str] = []
    ordered = sorted(set(numbers))
    start = 0
    for i in range(len(ordered)):
        if i + 1 < len(ordered) and ordered[i + 1] == ordered[i] + 1:
            continue
        run = ordered[start : i + 1]
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(number) for number in run]
        start = i + 1
    return between.join(parts)


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    text = text.strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def seconds_text(seconds: float) -> str:
    """`40 ms`, `0.4 s`, `12 s`, `3 min`, `2.5 h`."""
    if 0 < seconds < 0.1:
        return f"{max(seconds * 1e3, 1):.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def bytes_text(count: float) -> str:
    """`512 B`, `1.2 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def hosts_text(hosts: Sequence[str]) -> str:
    """`a, b and 126 other hosts`."""
    if len(hosts) <= MOST_HOSTS:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:2])} and {len(hosts) - 2} other hosts"


def call_text(kind: str, target: str) -> str:
    """`pipe read pipe:[4711]`: what a blocked call waits on."""
    return f"{kind.replace('-', ' ')} {target}".strip()


_AWAITED = {
    "asyncio.sleep": "sleeps in asyncio.sleep",
    "connection": "awaits data on a connection",
    "future": "awaits a future that is not set",
    "ray": "awaits the result of a Ray task",
    "thread": "awaits a future of another thread",
}


def awaited_text(what: str) -> str:
    """`awaits an asyncio.Semaphore`: what a coroutine waits for."""
    return _AWAITED.get(what) or f"awaits an {what}"


def shorten(text: str, limit: int = 80) -> str:
    """At most so many characters, cut in the middle."""
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


_PLURALS = {"is": "are", "has": "have", "does": "do", "was": "were"}


def verb(ranks: Sequence[int], singular: str) -> str:
    """`waits` of one rank, `wait` of several."""
    return conjugated(singular, len(ranks))


def conjugated(text: str, count: int) -> str:
    """The sentence's first word, a verb in the third person, for so many ranks."""
    if count <= 1:
        return text
    verb, space, tail = text.partition(" ")
    plural = _PLURALS.get(verb) or (verb.removesuffix("s"))
    return f"{plural}{space}{tail}"
