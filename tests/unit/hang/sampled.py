"""Which jobs the stages are held to, and how they are read: recorded ones, some of them seen worse,
and simulated ones.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import msgspec

from grpo_doctor.hang.multihost.join import joined
from grpo_doctor_probes.evidence import Evidence
from tests.corpus import store
from tests.corpus.degraded import variants
from tests.corpus.items import Item
from tests.corpus.score import evidence_of
from tests.nccl_rules.cases import DEVELOPMENT, Case, drawn
from tests.several_hosts import on_hosts

_TWO_HOSTS = "two hosts"
_DUMPS_ALONE = "dumps alone"


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


def evidence(name: str) -> Evidence:
    """Of a job by `ARCHIVE/NAME`, or `ARCHIVE/NAME/WAY` for one that is seen otherwise."""
    archive, item_name, *variant = name.split("/")
    item = msgspec.msgpack.decode(_archive(archive)[item_name], type=Item)
    recorded = evidence_of(item)
    if variant == [_TWO_HOSTS]:
        return joined(on_hosts(recorded, (recorded.job.world_size or 0) // 2))
    if variant == [_DUMPS_ALONE]:
        return replace(recorded, looks=(), stacks=(), blocked=(), spans=())
    return dict(variants(recorded))[variant[0]] if variant else recorded
