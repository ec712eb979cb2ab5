"""Which jobs the stages are held to, and how they are read: recorded ones, some of them seen worse,
and simulated ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

import msgspec

from grpo_doctor.hang.collection.bundle.packing import with_counts
from grpo_doctor.hang.multihost import joined
from grpo_doctor_probes.evidence import Evidence
from tests.corpus import store
from tests.corpus.degraded import variants
from tests.corpus.items import Item
from tests.corpus.score import answer, evidence_of
from tests.nccl_rules.cases import DEVELOPMENT, Case, drawn
from tests.nccl_rules.faults import KINDS
from tests.several_hosts import on_hosts

SIMULATED = "simulated"
_COUNTERS = ", counters alone"
_TWO_HOSTS = "two hosts"
_DUMPS_ALONE = "dumps alone"
_OF_ALL = (
    "recordings",
    "matching",
    "processes",
    "model",
    "waiting",
    "causes",
    "decision",
    "verdict",
)


class _Named(msgspec.Struct):
    name: str


@cache
def _archive(name: str) -> dict[str, msgspec.Raw]:
    """The jobs of an archive, of which most are not read."""
    items = msgspec.msgpack.decode(store.content_of(store.FOLDER / name), type=list[msgspec.Raw])
    return {msgspec.msgpack.decode(item, type=_Named).name: item for item in items}


@cache
def simulated(kind: str, seed: int = 7, *, counters: bool = False) -> Case:
    """A job under NCCL's rules with one fault."""
    return drawn(kind, seed, DEVELOPMENT, counters=counters)


def case(name: str) -> Case:
    """A simulated job by `simulated/KIND`."""
    kind, counters, _ = name.partition("/")[2].partition(_COUNTERS)
    return simulated(kind, counters=bool(counters))


def evidence(name: str) -> Evidence:
    """Of a job by `ARCHIVE/NAME`, or `ARCHIVE/NAME/WAY` for one that is seen otherwise."""
    archive, item_name, *variant = name.split("/")
    item = msgspec.msgpack.decode(_archive(archive)[item_name], type=Item)
    evidences = tuple(map(with_counts, item.evidences))
    recorded = evidence_of(msgspec.structs.replace(item, evidences=evidences))
    if variant == [_TWO_HOSTS]:
        return joined(on_hosts(recorded, (recorded.job.world_size or 0) // 2))
    if variant == [_DUMPS_ALONE]:
        return replace(recorded, looks=(), stacks=(), blocked=(), spans=())
    return dict(variants(recorded))[variant[0]] if variant else recorded


def all_of_them() -> Iterator[tuple[str, Sequence[str]]]:
    """Every job, with the stages that say something of it."""
    chosen = _chosen()
    dumped = [name for name in chosen if evidence(name).dumps]
    large = [name for name in chosen if _is_large(name)]
    yield from ((name, _OF_ALL) for name in [*chosen, *_worse(chosen[::3])])
    yield from ((f"{name}/{_DUMPS_ALONE}", ("verdict",)) for name in dumped[::3])
    yield from ((f"{name}/{_TWO_HOSTS}", ("hosts",)) for name in large[::2])
    for kind in KINDS:
        yield from ((f"{SIMULATED}/{kind}{also}", (SIMULATED,)) for also in ("", _COUNTERS))


def _chosen() -> list[str]:
    """The smallest job of every verdict and source."""
    best: dict[tuple[str, str, str], tuple[int, str]] = {}
    for path in store.archives():
        for item in store.items_of(path):
            outcome = answer(item)
            size = sum(len(msgspec.json.encode(visit)) for visit in item.evidences)
            kind = outcome.source, outcome.state, outcome.cause
            best[kind] = min(best.get(kind, (size, "~")), (size, f"{path.name}/{item.name}"))
    return sorted(name for _, name in best.values())


def _is_large(name: str) -> bool:
    job = evidence(name).job
    return 4 <= (job.world_size or 0) <= 16 and len(job.placements) < 2 and not job.ranks_missing


def _worse(names: Sequence[str]) -> Iterator[str]:
    """Each of these jobs, seen in one of the ways that make a difference to it."""
    for at, name in enumerate(names):
        names_of_variants = [variant for variant, _ in variants(evidence(name))]
        if names_of_variants:
            yield f"{name}/{names_of_variants[at % len(names_of_variants)]}"
