"""What an operation is, whatever a backend calls it: `nccl:_all_gather_base` is an all_gather."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "barrier",
    "send",
    "recv",
    "coalesced",  # the end of a coalesced group
    "other",
)
LONGEST_TEXT = 300
_HARMFUL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_PREFIX = re.compile(r"^([A-Za-z0-9_.\-]{1,20}):(?!:)")
_PEERS = re.compile(r"^(send|recv)\s+(\d{1,9})\s*(->|<-)\s*(\d{1,9})$")
_VARIANT = re.compile(r"(_oop|_base|_coalesced|_single|_v|_tensor|_into)$")
_SPELLINGS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "reducescatter": "reduce_scatter",
    "all_reduce_barrier": "barrier",
}


class Operation(NamedTuple):
    """A recorded name in parts. `source` and `target` are ranks in the group, of send and recv."""

    backend: str
    op: str
    label: str
    source: int | None = None
    target: int | None = None


def clean(value: Any) -> str:
    """A text of a dump without what could steer a terminal, cut to a line."""
    text = value if isinstance(value, str) else "" if value is None else repr(value)[:LONGEST_TEXT]
    return _HARMFUL.sub(" ", text[:LONGEST_TEXT]).strip()


@lru_cache(maxsize=4096)
def operation(name: str) -> Operation:
    """Takes a `profiling_name` apart: `nccl:recv 3<-0`, `xccl:ALLGATHER_coalesced`."""
    label = clean(name)
    prefix = _PREFIX.match(label)
    backend = prefix[1].lower() if prefix else ""
    bare = label[prefix.end() :] if prefix else label
    peers = _PEERS.match(bare)
    if peers:
        first, second = int(peers[2]), int(peers[4])
        source, target = (first, second) if peers[3] == "->" else (second, first)
        return Operation(backend, peers[1], label, source, target)
    return Operation(backend, _canonical(bare), label)


def _canonical(bare: str) -> str:
    """`ALLGATHER_coalesced` ends a coalesced group; `allreduce_coalesced` is one all_reduce."""
    if bare == "coalesced" or (bare.endswith("_coalesced") and bare[0].isupper()):
        return "coalesced"
    name = bare.lower().lstrip("_").partition(" ")[0]
    while (shorter := _VARIANT.sub("", name)) != name:
        name = shorter
    name = _SPELLINGS.get(name, name)
    return name if name in OPERATIONS else "other"
