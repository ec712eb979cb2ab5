"""Which of several proposals explains the rest."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.catalogue import TEXT
from grpo_doctor.hang.causes.candidate import Candidate, Sink
from grpo_doctor.hang.diagnose import roots_of
from grpo_doctor.hang.model.matching.model import Blame, Matching
from grpo_doctor.hang.model.nodes import RankNode
from grpo_doctor.hang.model.waiting.waits import Graph, Link
from tests.evidence import EvidenceBuilder, frames
from tests.unit.hang.causes.proposed import case_of, with_view

FETCH = frames("fetch_table /home/me/train.py:30", "main /home/me/train.py:9")
LOOK = frames("fetch_table /home/me/train.py:25", "main /home/me/train.py:9")


def polls(build: EvidenceBuilder, rank: int, wakes: int = 5) -> None:
    """It looks whether something is there, sleeps, and looks again."""
    process = build.elsewhere(rank, LOOK)
    process.still_s, process.wakes, process.wchan = 0.3, wakes, "hrtimer_nanosleep"
    process.blocks("sleep")


# Which labels are left, and in which order.


def label(*ranks: int, sink: Sink = Sink.ANSWER, **more: Any) -> Candidate:
    cause = more.pop("cause", f"cause-{'-'.join(map(str, ranks))}")
    return Candidate(cause, more.pop("reason", "stands"), (), sink, culprits=ranks, **more)


def waits(*pairs: tuple[int, int]) -> Graph:
    """The first rank of each pair waits for the second."""
    return Graph.of(
        Link(RankNode(rank), frozenset({RankNode(on)}), "collective") for rank, on in pairs
    )


def silent() -> EvidenceBuilder:
    """All stand in code of their own."""
    build = EvidenceBuilder(ranks=6)
    for rank in range(6):
        build.elsewhere(rank, FETCH)
    return build


def roots(
    *labels: Candidate,
    graph: Graph | None = None,
    build: EvidenceBuilder | None = None,
    blame: tuple[Blame, ...] = (),
) -> list[Candidate]:
    view = with_view(case_of(build or silent()), matching=Matching(blame=blame)).view
    return list(roots_of(view, graph or waits(), labels))


def causes(labels: list[Candidate]) -> list[str]:
    return [root.cause for root in labels]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"sink": Sink.LINE}, {"sink": Sink.ANSWER}, "second"),
        ({"sink": Sink.ANSWER}, {"sink": Sink.LINE}, "first"),
        ({}, {"liveness": "never-wakes"}, "second"),
        ({"liveness": "never-wakes"}, {}, "first"),
        ({}, {}, "first"),
    ],
)
def test_of_two_labels_of_the_same_ranks_the_stronger_is_kept(
    first: dict[str, Any], second: dict[str, Any], expected: str
) -> None:
    labels = roots(
        label(1, reason="first", **{"cause": "a", **first}),
        label(1, reason="second", **{"cause": "a", **second}),
    )
    assert [root.reason for root in labels] == [expected]


@pytest.mark.parametrize(
    ("pairs", "labelled", "left"),
    [
        (((1, 0),), ((0,), (1,)), ["cause-0"]),
        (((1, 0), (2, 1)), ((0,), (2,)), ["cause-0"]),  # in the end
        ((), ((0,), (1,)), ["cause-0", "cause-1"]),
        (((1, 0),), ((0,), (1, 2)), ["cause-0", "cause-1-2"]),  # rank 2 waits for nobody
        (((1, 0), (2, 0)), ((0,), (1, 2)), ["cause-0"]),
        (((1, 0), (2, 3)), ((0, 3), (1, 2)), ["cause-0-3"]),
        (((1, 0),), ((0,), ()), ["cause-0", "cause-"]),  # it is of nobody
    ],
)
def test_a_label_is_explained_by_one_that_all_its_ranks_wait_for(
    pairs: tuple[tuple[int, int], ...], labelled: tuple[tuple[int, ...], ...], left: list[str]
) -> None:
    remaining = causes(roots(*(label(*ranks) for ranks in labelled), graph=waits(*pairs)))
    assert sorted(remaining) == sorted(left)


@pytest.mark.parametrize(
    ("sink", "wakes", "still_s", "merged"),
    [
        (Sink.LINE, 0, 10.0, True),
        (Sink.LINE, 5, 10.0, False),  # it polls
        (Sink.LINE, 0, 1.5, False),  # it ran lately
        (Sink.LINE, 0, 2.0, True),
        (Sink.LINE, 0, None, True),  # nobody knows when
        (Sink.COUNTERS, 5, 1.5, True),  # more is known of it than its line
    ],
)
def test_who_asks_and_sleeps_is_not_one_with_who_is_silent(
    sink: Sink, wakes: int, still_s: float | None, merged: bool
) -> None:
    build = silent()
    build.rank(1).wakes = wakes
    build.rank(1).still_s = 1001.2 if still_s is None else still_s
    other = replace(label(1, sink=sink, cause="same"), reason="of its own")
    labels = roots(other, label(0, sink=sink, cause="same"), build=build)
    assert [root.culprits for root in labels] == ([(0, 1)] if merged else [(0,), (1,)])
    assert labels[0].likewise == ((1,) if merged else ())


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"liveness": "never-wakes"}, {"sink": Sink.HOLDER}),
        ({"liveness": "unseen"}, {"liveness": "computing", "sink": Sink.HOLDER}),
        ({"liveness": "unseen"}, {"liveness": "progressing", "sink": Sink.HOLDER}),
        ({"sink": Sink.HOLDER}, {"still_s": 90.0}),
    ],
)
@pytest.mark.parametrize("better_first", [True, False])
def test_the_likelier_root_comes_first(
    better: dict[str, Any], worse: dict[str, Any], better_first: bool
) -> None:
    ranks = (0, 1) if better_first else (1, 0)
    labels = roots(
        label(ranks[0], **{"cause": "better", **better}),
        label(ranks[1], **{"cause": "worse", **worse}),
    )
    assert causes(labels) == ["better", "worse"]


def test_the_page_has_the_ends_of_waits_in_their_order() -> None:
    rows = re.findall(r"^\| ([a-z]+) \| .+ \| (.+) \|$", TEXT, re.MULTILINE)
    assert [name.upper() for name, _ in rows] == [sink.name for sink in sorted(Sink, reverse=True)]
    assert all(why != "-" for _, why in rows[:-1])
