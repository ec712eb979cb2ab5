"""Xid and SXid lines of the kernel's log: which GPU or switch failed, and of which rank it is.

Formats: NVIDIA's "XID Errors" guide. The process may be `'<unknown>'` (dcgm-exporter#84), and seen
from a container its number is the host's: then the PCI address shows whose GPU it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from grpo_doctor_probes.evidence import Evidence

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?:, pid='?(?P<pid>\d+))?"
)
_SXID = re.compile(
    r"nvidia-nvswitch\d+: SXid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<code>\d+)"
    r"(?:, (?P<kind>Fatal))?"
)
_BUS = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})")
# Not among them are notices: a row to be remapped (63), many corrected errors (92), and what the
# user's own kernel did wrong and the driver survived (13).
FATAL = frozenset({31, 43, 45, 48, 61, 62, 64, 74, 79, 94, 95, 109, 119, 120, 121, 140})

Address = tuple[int, int, int]  # domain, bus, device


@dataclass(frozen=True, slots=True)
class Xid:
    """One line. `switch`: of an NVSwitch, which is of no GPU alone. `pid` is the driver's."""

    age_s: float
    code: int
    bus: Address | None
    pid: int | None
    fatal: bool
    text: str
    switch: bool = False


def address(text: str) -> Address | None:
    """A PCI address without its function: the driver and NVML write it with different zeros."""
    match = _BUS.search(text)
    if match is None:
        return None
    return int(match[1] or "0", 16), int(match[2], 16), int(match[3], 16)


def xids(evidence: Evidence) -> Iterator[Xid]:
    """Those that the kernel wrote in the last hour, oldest first."""
    for age_s, text in evidence.host.kernel if evidence.host is not None else ():
        if match := _XID.search(text):
            pid = int(match["pid"]) if match["pid"] else None
            code = int(match["code"])
            yield Xid(age_s, code, address(match["bus"]), pid, code in FATAL, text)
        elif match := _SXID.search(text):
            fatal = match["kind"] is not None
            bus = address(match["bus"])
            yield Xid(age_s, int(match["code"]), bus, None, fatal, text, switch=True)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose GPU it is: `ranks` that are on it, `foreign` where it is known that no rank is."""

    ranks: tuple[int, ...] = ()
    foreign: bool = False


def owner(
    xid: Xid,
    on_gpus: Mapping[tuple[str, str], tuple[int, ...]],
    rank_of: Mapping[int, int | None],
) -> Owner:
    """Whose GPU a line is about.

    Args:
        xid: the line.
        on_gpus: as `gpus.ranks_of_gpus` gives them.
        rank_of: ranks by process number; those that compute on GPUs.

    The address decides where NVML knows it: in a container a process number of the host may be that
    of somebody else. Several hosts may have the same address: then the line names its host.
    """
    matches = [
        (host, ranks)
        for (host, bus), ranks in on_gpus.items()
        if xid.bus is not None
        and address(bus) == xid.bus
        and (not host or xid.text.endswith(f"(on {host})"))
    ]
    claimed = rank_of.get(xid.pid) if xid.pid is not None else None
    if matches and any(on_gpus.values()):
        ranks = tuple(sorted({rank for _, ranks in matches for rank in ranks}))
        if claimed is not None and (claimed in ranks or not ranks):
            return Owner((claimed,))
        return Owner(ranks, foreign=not ranks)
    return Owner((claimed,)) if claimed is not None else Owner(foreign=xid.pid is not None)
