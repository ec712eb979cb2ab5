"""Coroutines of one thread side by side, and their common span."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.hooks.longspans import SharedSpan
from grpo_doctor_probes.hooks.spans import open_spans
from tests.unit.probes.conftest import Recorded


@pytest.mark.parametrize(
    ("events", "recorded"),
    [
        ("(a )a", ["a"]),
        ("(a )a (a )a", ["a", "a"]),
        ("(a (a )a )a", ["a"]),
        ("(a (a )a (a )a )a", ["a"]),
        ("(a (a (a )a )a )a (a )a", ["a", "a"]),
        ("(a (b )a )b", ["a", "b"]),
        ("(a (b (b )b )a )b", ["a", "b"]),
    ],
)
def test_one_span_is_open_from_the_first_to_the_last(
    recording: Recorded, events: str, recorded: list[str]
) -> None:
    running: list[SharedSpan] = []
    count = dict.fromkeys("ab", 0)
    for event in events.split():
        name = event[1]
        if event[0] == "(":
            running.append(SharedSpan(name))
            running[-1].__enter__()
            count[name] += 1
        else:
            SharedSpan(name).__exit__(None, None, None)
            count[name] -= 1
        assert sorted(open_spans()) == [name for name in "ab" if count[name]]
    assert [row.name for row in recording.rows] == recorded


def test_an_end_without_a_beginning_does_no_harm(recording: Recorded) -> None:
    SharedSpan("c").__exit__(None, None, None)
    with SharedSpan("c"):
        assert open_spans() == ["c"]
    assert [row.name for row in recording.rows] == ["c"]
