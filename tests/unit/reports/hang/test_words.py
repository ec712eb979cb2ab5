"""What page and terminal say of a visit, at the edges of what a document may hold."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.hang import words
from grpo_doctor_reports.schema.attach import AttachDocument, read_verdict


def visit(**parts: Any) -> AttachDocument:
    return read_verdict({"schema": 1, **parts})


def judged(**verdict: Any) -> AttachDocument:
    return visit(verdict=verdict)


def process(rank: int | None, **facts: Any) -> dict[str, Any]:
    return {"rank": rank, "role": "rank", "state": "waiting", **facts}


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        ({"summary": "All is well.", "state": "healthy"}, "All is well."),
        ({}, "The job's state is unknown: the job, cause unknown."),
        ({"state": "stuck", "culprits": [3]}, "The job is stuck: rank 3, cause unknown."),
        ({"state": "dead", "class": "oom", "culprits": [2, 1]}, "The job is dead: ranks 1-2, oom."),
    ],
)
def test_a_verdict_without_words_is_put_into_some(verdict: dict[str, Any], sentence: str) -> None:
    assert words.headline(judged(**verdict)) == sentence


@pytest.mark.parametrize(
    ("state", "shown", "nothing_to_fix"),
    [
        ("healthy", "healthy", True),
        ("slow", "slow", True),
        ("stuck", "stuck", False),
        ("dead", "dead", False),
        ("new", "stuck", False),
        ("", "stuck", False),
    ],
)
def test_a_state_that_is_not_known_counts_as_stuck(
    state: str, shown: str, nothing_to_fix: bool
) -> None:
    assert words.state(judged(state=state)) == shown
    assert words.healthy(judged(state=state)) == nothing_to_fix


def test_how_sure_a_verdict_is_is_said_of_a_class_alone() -> None:
    verdict = {"state": "stuck", "class": "stopped", "certainty": "likely", "phase": "train"}
    job = "0 ranks"
    assert words.facts(judged(**verdict)) == ["stuck", "stopped", "likely", "in train", job]
    assert words.facts(judged(**{**verdict, "class": ""})) == ["stuck", "in train", job]
    assert words.facts(judged(**{**verdict, "certainty": "", "phase": None})) == [
        "stuck", "stopped", job,
    ]  # fmt: skip
    assert words.facts(judged()) == [job]


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        ({"ranks_seen": [0, 1], "world_size": 4, "framework": "trl", "host": "a"},
         "2 of 4 ranks of trl on a"),
        ({"ranks_seen": [0], "framework": "unknown", "host": "a"}, "1 rank on a"),
        ({"ranks_seen": [0], "world_size": 0}, "1 of 0 ranks"),
    ],
)  # fmt: skip
def test_whose_job_it_is(job: dict[str, Any], sentence: str) -> None:
    assert words.job(visit(job=job)) == sentence


def test_why_is_where_the_guilty_stand() -> None:
    verdict = {"culprits": [1, 2, 3]}
    ranks = [
        process(0, where="train.py:1"),
        process(1, pid=41, where="train.py:2", waiting_for="rank 0"),
        process(2, pid=42, host="gpu-2", state=""),
        {"rank": 3, "role": "worker", "state": "running"},
    ]
    assert words.why(visit(verdict=verdict, ranks=ranks)) == [
        "rank 1 (pid 41): waiting at train.py:2, waiting for rank 0",
        "rank 2 (pid 42 on gpu-2): state unknown",
    ]
    alike = [process(1, pid=41), process(2, pid=42)]
    assert words.why(visit(verdict=verdict, ranks=alike)) == ["ranks 1-2: waiting"]


def test_guilty_ranks_that_nobody_saw_are_said_to_be_elsewhere() -> None:
    verdict = {"culprits": [5, 6]}
    assert words.why(visit(verdict=verdict, ranks=[process(0)])) == ["ranks 5-6: not on this host"]
    assert words.why(visit(ranks=[process(0)])) == []
    stuck = visit(verdict=verdict, ranks=[process(5)])
    assert words.why(stuck) == ["rank 5: waiting"]


def cycle(size: int, **edge: str) -> list[str]:
    ring = [f"rank:{rank}" for rank in range(size)]
    nodes = [{"id": id_, "label": id_.replace(":", " ")} for id_ in ring]
    edges = [
        {"source": id_, "target": target, **edge}
        for id_, target in zip(ring, ring[1:] + ring[:1], strict=True)
    ]
    return words.why(visit(graph={"nodes": nodes, "edges": edges, "cycle": ring}))


def test_a_cycle_is_told_wait_by_wait() -> None:
    assert cycle(2, kind="p2p", label="recv") == [
        "rank 0 waits for rank 1 in recv",
        "rank 1 waits for rank 0 in recv, closing the cycle",
    ]
    assert cycle(2, kind="p2p")[0] == "rank 0 waits for rank 1 in p2p"
    assert cycle(2)[0] == "rank 0 waits for rank 1"


def test_who_is_in_a_cycle_without_a_point_or_a_wait_is_named_by_its_id() -> None:
    assert words.why(visit(graph={"cycle": ["pid:7", "file:/x"]})) == [
        "pid:7 waits for file:/x",
        "file:/x waits for pid:7, closing the cycle",
    ]
    edges = [{"source": "pid:7", "target": "pid:8", "kind": "pipe"},
             {"source": "pid:7", "target": "file:/x", "kind": "flock"}]  # fmt: skip
    lines = words.why(visit(graph={"cycle": ["pid:7", "file:/x"], "edges": edges}))
    assert lines[0] == "pid:7 waits for file:/x in flock"


@pytest.mark.parametrize("size", [8, 9, 10, 100])
def test_a_cycle_of_more_than_eight_is_told_by_its_ends(size: int) -> None:
    lines = cycle(size)
    assert len(lines) == 8
    assert lines[:6] == [f"rank {at} waits for rank {at + 1}" for at in range(6)]
    assert lines[7] == f"rank {size - 1} waits for rank 0, closing the cycle"
    middle = "rank 6 waits for rank 7" if size == 8 else f"and so on, to rank {size - 1}"
    assert lines[6] == middle


def rows(*ranks: dict[str, Any], **parts: Any) -> list[tuple[str, str]]:
    entries = words.rows_of(visit(ranks=list(ranks), **parts))
    return [(row.name, row.waiting_for) for row in entries]


def test_the_guilty_come_first_then_ranks_then_the_others() -> None:
    everyone = [
        {"pid": 7, "role": "engine", "rank": 1, "state": "running"},
        process(0),
        process(1, where="train.py:2"),
        {"pid": 8, "state": "running"},
    ]
    entries = words.rows_of(visit(ranks=everyone, verdict={"culprits": [1]}))
    assert [(row.name, row.culprit) for row in entries] == [
        ("rank 1", True), ("rank 0", False), ("engine of rank 1", False), ("process", False),
    ]  # fmt: skip


def test_alike_processes_are_counted_and_have_no_number() -> None:
    workers = [{"rank": rank, "pid": 7 + rank, "role": "worker"} for rank in (0, 1, 0)]
    (row,) = words.rows_of(visit(ranks=workers))
    assert (row.name, row.pid) == ("3 x worker of ranks 0-1", None)
    assert rows({"pid": 1}, {"pid": 2}) == [("2 x process", "")]
    assert rows(process(None), process(None)) == [("2 ranks", "")]
    assert rows(process(None), process(3)) == [("rank 3", "")]
    (alone,) = words.rows_of(visit(ranks=[process(3, pid=9)]))
    assert alone.pid == 9


def test_a_rank_that_was_not_seen_is_no_row() -> None:
    assert rows(process(0), process(1, state="missing")) == [("rank 0", "")]


def test_a_sleep_is_put_into_words() -> None:
    assert rows(process(0, waiting_for="sleep")) == [("rank 0", "its sleep to end")]


@pytest.mark.parametrize("count", [20, 21])
def test_of_more_than_twenty_rows_who_waits_for_whom_is_left_out(count: int) -> None:
    ranks = [process(rank, waiting_for=f"rank {rank + 1}") for rank in range(count)]
    ranks.append(process(count, where="train.py:2"))
    if count == 20:
        ranks.pop(0)
        assert len(rows(*ranks)) == 20
        return
    everyone = f"ranks 0-{count - 1}"
    nobody = (f"rank {count}", "")
    assert rows(*ranks) == [(everyone, "several targets"), nobody]
    graph = {"nodes": [{"id": "rank:0"}]}
    assert rows(*ranks, graph=graph) == [(everyone, "several targets (see the graph)"), nobody]


@pytest.mark.parametrize(
    ("hosts", "sentence"),
    [(["", ""], ""), (["b", "a", "b"], "a, b"), (["a", ""], "a"), (["a", "b", "c"], "3 hosts")],
)
def test_of_more_than_two_hosts_their_number_is_said(hosts: list[str], sentence: str) -> None:
    ranks = [process(rank, host=host) for rank, host in enumerate(hosts)]
    (row,) = words.rows_of(visit(ranks=ranks))
    assert row.hosts == sentence


def test_what_ends_like_a_sentence_is_no_command() -> None:
    assert words.is_command("kill -CONT 7")
    assert not words.is_command("Look at it.")
    assert not words.is_command("Does it move?")


@pytest.mark.parametrize(
    ("state", "missing", "hosts", "sentence"),
    [
        ("dead", [1], [], "the process no longer exists"),
        ("dead", [1, 2], [], "not on this host"),
        ("stuck", [1], [], "not on this host"),
        ("stuck", [1], [{"name": "a"}], "not on any inspected host"),
        ("dead", [1], [{"name": "a"}], "the process no longer exists"),
    ],
)
def test_why_a_rank_was_not_seen(
    state: str, missing: list[int], hosts: list[dict[str, Any]], sentence: str
) -> None:
    job = {"ranks_missing": missing, "hosts": hosts}
    assert words.not_seen(visit(job=job, verdict={"state": state, "culprits": [1, 3]})) == sentence


def test_ranks_of_a_host() -> None:
    hosts = [{"name": "a", "ranks": [0, 1]}, {"name": "b"}]
    assert [words.ranks_of(host) for host in visit(job={"hosts": hosts}).job.hosts] == [
        "ranks 0-1", "no rank",
    ]  # fmt: skip


def test_evidence_is_grouped_by_source_a_confirmation_first() -> None:
    pairs = (("proc", "a"), ("", "b"), ("confirmation", "c"), ("proc", "d"))
    items = [{"source": source, "text": text} for source, text in pairs]
    groups = words.evidence(judged(evidence=items))
    assert [(source, [item.text for item in items]) for source, items in groups] == [
        ("confirmation", ["c"]), ("proc", ["a", "d"]), ("seen", ["b"]),
    ]  # fmt: skip
    assert [source for source, _ in words.evidence(judged(evidence=items[:2]))] == ["proc", "seen"]


@pytest.mark.parametrize(
    ("rank", "text", "sentence"),
    [
        (None, "is stopped", "is stopped"),
        (3, "is stopped", "rank 3: is stopped"),
        (3, "Rank 3 is stopped", "Rank 3 is stopped"),
        (0, "is stopped", "rank 0: is stopped"),
    ],
)
def test_evidence_names_its_rank_once(rank: int | None, text: str, sentence: str) -> None:
    (item,) = judged(evidence=[{"rank": rank, "text": text}]).verdict.evidence
    assert words.item_words(item) == sentence


def test_stacks_of_the_guilty_come_first() -> None:
    stacks = [{"ranks": [0], "title": "a"}, {"ranks": [1, 2], "title": "b"}, {"title": "c"}]
    entries = words.stacks(visit(stacks=stacks, verdict={"culprits": [2]}))
    assert [stack.title for stack in entries] == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("cost", "sentence"),
    [
        ({}, ""),
        ({"seconds": 2.0}, "Inspection took 2 s."),
        ({"seconds": 2.0, "max_pause_ms": 0.0}, "Inspection took 2 s; no rank was paused."),
        ({"seconds": 0.0, "max_pause_ms": 0.01},
         "Inspection took 0 s; no rank was paused for longer than 0.1 ms."),
        ({"seconds": 2.0, "max_pause_ms": 9.94},
         "Inspection took 2 s; no rank was paused for longer than 9.9 ms."),
        ({"seconds": 2.0, "max_pause_ms": 10.0},
         "Inspection took 2 s; no rank was paused for longer than 10 ms."),
    ],
)  # fmt: skip
def test_what_looking_cost(cost: dict[str, float], sentence: str) -> None:
    assert words.cost(visit(cost=cost)) == sentence
