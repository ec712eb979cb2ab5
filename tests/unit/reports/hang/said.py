"""Verdicts at the edges of what a document may hold, each by what it shows; `said.txt` has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grpo_doctor_reports.hang import words
from grpo_doctor_reports.hang.graph import make_graph
from grpo_doctor_reports.schema.attach import AttachDocument, read_verdict

Visit = dict[str, Any]


def process(rank: int | None, **facts: Any) -> Visit:
    return {"rank": rank, "role": "rank", "state": "waiting", **facts}


def judged(**verdict: Any) -> Visit:
    return {"verdict": verdict}


def cycle(size: int, **edge: str) -> Visit:
    ring = [f"rank:{rank}" for rank in range(size)]
    nodes = [{"id": name, "label": name.replace(":", " ")} for name in ring]
    edges = [
        {"source": name, "target": target, **edge}
        for name, target in zip(ring, ring[1:] + ring[:1], strict=True)
    ]
    return {"graph": {"nodes": nodes, "edges": edges, "cycle": ring}}


def waiting(count: int) -> Visit:
    ranks = [process(rank, waiting_for=f"rank {rank + 1}") for rank in range(count)]
    return {"ranks": [*ranks, process(count, where="train.py:2")]}


CERTAIN = {"state": "stuck", "class": "stopped", "certainty": "likely", "phase": "train"}
GUILTY = {"culprits": [1, 2, 3]}
STANDING = [
    process(0, where="train.py:1"),
    process(1, pid=41, where="train.py:2", waiting_for="rank 0"),
    process(2, pid=42, host="gpu-2", state=""),
    {"rank": 3, "role": "worker", "state": "running"},
]
EVERYONE = [
    {"pid": 7, "role": "engine", "rank": 1, "state": "running"}, process(0),
    process(1, where="train.py:2"), {"pid": 8, "state": "running"},
]  # fmt: skip
TO_FILE = [{"source": "pid:7", "target": "pid:8", "kind": "pipe"},
           {"source": "pid:7", "target": "file:/x", "kind": "flock"}]  # fmt: skip
EVIDENCE = [
    {"source": source, "text": text, "rank": rank}
    for source, text, rank in (
        ("proc", "is stopped", None), ("", "is stopped", 3), ("confirmation", "Rank 3 is it", 3),
        ("proc", "is stopped", 0),
    )
]  # fmt: skip
STACKS = [{"ranks": [0], "title": "a"}, {"ranks": [1, 2], "title": "b"}, {"title": "c"}]

VISITS: dict[str, Visit] = {
    "a verdict in its own words": judged(summary="All is well.", state="healthy"),
    "nothing": {},
    "stuck for an unknown cause": judged(state="stuck", culprits=[3]),
    "dead of a class": judged(state="dead", culprits=[2, 1], **{"class": "oom"}),
    **{f"state {state}": judged(state=state) for state in ("slow", "dead", "new")},
    "how certain a class is": {"verdict": CERTAIN},
    "how certain no class is": {"verdict": {**CERTAIN, "class": ""}},
    "a class alone": {"verdict": {**CERTAIN, "certainty": "", "phase": None}},
    "whose job": {
        "job": {"ranks_seen": [0, 1], "world_size": 4, "framework": "trl", "host": "a"}},
    "a job of nobody": {"job": {"ranks_seen": [0], "framework": "unknown", "host": "a"}},
    "a job of no rank": {"job": {"ranks_seen": [0], "world_size": 0}},
    "where the guilty stand": {"verdict": GUILTY, "ranks": STANDING},
    "the guilty stand alike": {"verdict": GUILTY, "ranks": [process(1, pid=41), process(2)]},
    "guilty ranks that nobody saw": {"verdict": {"culprits": [5, 6]}, "ranks": [process(0)]},
    "one of them was seen": {"verdict": {"culprits": [5, 6]}, "ranks": [process(5)]},
    "a cycle, wait by wait": cycle(2, kind="p2p", label="recv"),
    "a cycle of a kind": cycle(2, kind="p2p"),
    "a cycle of nothing known": cycle(2),
    **{f"a cycle of {size}": cycle(size) for size in (8, 9, 10, 100)},
    "a cycle without points": {"graph": {"cycle": ["pid:7", "file:/x"]}},
    "a cycle with another wait": {"graph": {"cycle": ["pid:7", "file:/x"], "edges": TO_FILE}},
    "the guilty first, then ranks, then the others": {
        "ranks": EVERYONE, "verdict": {"culprits": [1]}},
    "alike workers are counted": {
        "ranks": [{"rank": rank, "pid": 7 + rank, "role": "worker"} for rank in (0, 1, 0)]},
    "alike processes": {"ranks": [{"pid": 1}, {"pid": 2}]},
    "ranks without a number": {"ranks": [process(None), process(None)]},
    "a rank with and one without": {"ranks": [process(None), process(3, pid=9)]},
    "a rank alone": {"ranks": [process(3, pid=9)]},
    "a rank that was not seen is no row": {"ranks": [process(0), process(1, state="missing")]},
    "a sleep": {"ranks": [process(0, waiting_for="sleep")]},
    "twenty rows": {"ranks": waiting(20)["ranks"][1:]},
    "of more than twenty who waits for whom is left out": waiting(20),
    "and is in the graph": {**waiting(20), "graph": {"nodes": [{"id": "rank:0"}]}},
    **{f"hosts {hosts}": {"ranks": [process(n, host=host) for n, host in enumerate(hosts)]}
       for hosts in (["", ""], ["b", "a", "b"], ["a", ""], ["a", "b", "c"])},
    **{f"{state}, not seen {missing} on {hosts}": {
        "job": {"ranks_missing": missing, "hosts": [{"name": host} for host in hosts]},
        "verdict": {"state": state, "culprits": [1, 3]}}
       for state, missing, hosts in (("dead", [1], ""), ("dead", [1, 2], ""), ("stuck", [1], ""),
                                     ("stuck", [1], "a"), ("dead", [1], "a"))},
    "ranks of hosts": {"job": {"hosts": [{"name": "a", "ranks": [0, 1]}, {"name": "b"}]}},
    "evidence by its source, a confirmation first": judged(evidence=EVIDENCE),
    "stacks of the guilty first": {"stacks": STACKS, "verdict": {"culprits": [2]}},
    **{f"cost {cost}": {"cost": cost} for cost in (
        {"seconds": 2.0}, {"seconds": 2.0, "max_pause_ms": 0.0},
        {"seconds": 0.0, "max_pause_ms": 0.01}, {"seconds": 2.0, "max_pause_ms": 9.94},
        {"seconds": 2.0, "max_pause_ms": 10.0})},
}  # fmt: skip


def points(*ends: str, guilty: str = "", cycle: str = "", **graph: Any) -> Visit:
    """Waits as `a>b`, of points such as `rank:0` and `role=pid:1`."""
    edges, nodes = [], {}
    for end in ends:
        pair = end.split(">")
        for own, _, name in (each.rpartition("=") for each in pair):
            label, role = name.replace(":", " "), own or name.partition(":")[0]
            nodes[name] = {"id": name, "label": label, "role": role, "guilty": name == guilty}
        if len(pair) == 2:
            source, target = (each.rpartition("=")[2] for each in pair)
            edges.append({"source": source, "target": target, "kind": "collective"})
    return {"graph": {"nodes": [*nodes.values()], "edges": edges, "cycle": cycle.split(), **graph}}


def waits(*edges: dict[str, str]) -> Visit:
    return {"graph": {"edges": [{"source": "pid:1", "target": "pid:2", **each} for each in edges]}}


def ring(size: int) -> Visit:
    names = [f"rank:{rank}" for rank in range(size)]
    pairs = zip(names, names[1:] + names[:1], strict=True)
    return points(*(f"{a}>{b}" for a, b in pairs), cycle=" ".join(names))


TWO_AND_ONE = {"graph": {"edges": [{"source": "rank:0-1", "target": "rank:2", "kind": "p2p"}]}}
ALIKE = [process(0, where="a.py:1"), process(1, where="a.py:1"), process(2, where="b.py:2")]
GRAPHS: dict[str, Visit] = {
    "ranks that wait alike are one box": points(
        *(f"rank:{rank}>rank:3" for rank in range(64) if rank != 3), guilty="rank:3"),
    "workers of alike ranks are alike": points(
        *(f"rank:{rank}>rank:9" for rank in range(3)), *(f"pid:{r}>rank:{r}" for r in range(3))),
    "a chain": points("rank:0>rank:1", "rank:1>pid:7", "pid:7>file:/lock"),
    **{f"a cycle of {size}": ring(size) for size in (8, 9)},
    "a ring names each point once, and none unknown": points(
        "rank:0>rank:1", "rank:1>rank:0", cycle="rank:0 rank:1 rank:0 rank:9"),
    **{f"{size} that wait in a chain": points(*(f"pid:{at + 1}>pid:{at}" for at in range(size)))
       for size in (3, 4, 5, 9)},
    "what waits for a cycle": points("rank:0>rank:1", "rank:1>rank:0", "pid:7>rank:0",
                                     "pid:8>pid:7", cycle="rank:0 rank:1"),
    "the longest of the ways to an end": points("pid:3>pid:1", "pid:3>pid:2", "pid:2>pid:1"),
    **{f"a row of {size}": points(*(f"role {at}=pid:{at}" for at in range(size)))
       for size in (4, 5, 6)},
    "the guilty in a crowd": points(*(f"role {at}=pid:{at}" for at in range(6)), guilty="pid:5"),
    "ranks and others": points(*(f"one={end}>file:/lock" for end in ("rank:0", "rank:1", "pid:7"))),
    "a wait with words": waits({"kind": "pipe", "label": "stdin"}),
    "a wait without": waits({"kind": "pipe"}),
    "two waits of a kind": waits(*({"kind": "pipe", "label": text} for text in ("in", "out"))),
    "waits of three kinds": waits(*({"kind": k, "label": text} for k, text in ("pa", "sb", "fc"))),
    "a wait for itself": {"graph": {"edges": [
        {"source": "pid:1", "target": "pid:1"},
        {"source": "rank:0-1", "target": "rank:0-1", "kind": "p2p"}]}},
    "stands nowhere": TWO_AND_ONE,
    "all of it stand there": {**TWO_AND_ONE, "ranks": ALIKE},
    "one of them was seen there": {**TWO_AND_ONE, "ranks": ALIKE[:1]},
    "a worker of it stands there": {
        **TWO_AND_ONE, "ranks": [{**process(2, where="b.py:2"), "role": "worker"}]},
    **{f"on hosts {hosts}": {**TWO_AND_ONE, "job": {
        "hosts": [{"name": name, "ranks": ranks} for name, ranks in hosts.items()]}}
       for hosts in ({"a": [0, 1], "b": [2]}, {"a": [0, 1]}, {"a": [0], "b": [1]})},
}  # fmt: skip


def said() -> Iterator[tuple[str, str]]:
    """What page and terminal say of each."""
    for name, parts in VISITS.items():
        yield name, "\n".join(_lines(read_verdict({"schema": 1, **parts})))
    for name, parts in GRAPHS.items():
        yield f"graph: {name}", "\n".join(_drawn(read_verdict({"schema": 1, **parts})))


def _drawn(visit: AttachDocument) -> Iterator[str]:
    graph = make_graph(visit)
    for box in graph.boxes:
        marks = [text for text, is_so in (("guilty", box.culprit), ("in the cycle", box.in_cycle),
                                          ("no process", not box.is_process)) if is_so]  # fmt: skip
        yield ", ".join([f"{box.depth} {box.key}: {box.label!r} {box.detail}".strip(), *marks])
    yield from (f"{link.source} > {link.target}: {link.label}" for link in graph.links)
    yield f"cycle: {' '.join(graph.cycle)}"


def _lines(visit: AttachDocument) -> Iterator[str]:
    well = ", nothing to fix" if words.healthy(visit) else ""
    yield f"{words.headline(visit)} ({words.state(visit)}{well})"
    yield f"{'; '.join(words.facts(visit))} / {words.job(visit)} / {words.not_seen(visit)}"
    yield from (f"why: {line}" for line in words.why(visit))
    for row in words.rows_of(visit):
        guilty = " (guilty)" if row.culprit else ""
        yield f"{row.name}{guilty}, {row.pid}, on {row.hosts!r} for {row.waiting_for!r}"
    yield from (f"{host.name}: {words.ranks_of(host)}" for host in visit.job.hosts)
    for source, items in words.evidence(visit):
        yield f"{source}: {'; '.join(map(words.item_words, items))}"
    yield from (f"stack {stack.title}" for stack in words.stacks(visit))
    yield words.cost(visit)
