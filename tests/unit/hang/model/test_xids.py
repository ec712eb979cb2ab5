"""Xid lines as drivers write them, and whose GPU they are about."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.model.gpus import Xid, address, owner, xids
from grpo_doctor_probes.evidence import Evidence, HostFacts, Job

UNKNOWN = (
    "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)


def lines(*texts: str) -> list[Xid]:
    facts = HostFacts("here", 8, kernel=tuple((5.0, text) for text in texts))
    return list(xids(Evidence(Job("here", ()), 1, host=facts)))


@pytest.mark.parametrize(
    ("text", "pid", "fatal"),
    [
        (UNKNOWN, None, True),
        ("NVRM: Xid (PCI:0000:3b:00): 43, pid=4711, name=python, Ch 00000010", 4711, True),
        ("NVRM: Xid (PCI:0000:3B:00.0): 31, pid='4711', name=python", 4711, True),
        ("NVRM: Xid (0000:3b:00): 13, Graphics Exception", None, False),
        ("NVRM: Xid (PCI:0000:3b:00): 63, pid=1, Row Remapper: New row marked", 1, False),
    ],
)
def test_lines_of_all_drivers(text: str, pid: int | None, fatal: bool) -> None:
    (xid,) = lines(text)
    assert (xid.bus, xid.pid, xid.fatal) == ((0, 0x3B, 0), pid, fatal)


def test_lines_of_a_switch() -> None:
    fatal, other = lines(
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted",
    )
    assert (fatal.fatal, other.fatal) == (True, False)


def test_an_address_is_the_same_however_it_is_written() -> None:
    assert address("00000000:3B:00.0") == address("0000:3b:00") == address("PCI:3b:00.0")
    assert address("0001:3b:00") != address("0000:3b:00")
    assert address("nothing") is None


ON_GPUS = {("", "00000000:3B:00.0"): (3,), ("", "00000000:5E:00.0"): ()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (UNKNOWN, (3,)),
        # The host's number of the rank's process, that is somebody else's in this container.
        (UNKNOWN.replace("'<unknown>'", "42"), (3,)),
        (UNKNOWN.replace("'<unknown>'", "103"), (3,)),
        (UNKNOWN.replace("3b", "5e"), None),
        (UNKNOWN.replace("3b", "5e").replace("'<unknown>'", "103"), (3,)),
        (UNKNOWN.replace("3b", "aa"), ()),
        (UNKNOWN.replace("3b", "aa").replace("'<unknown>'", "999"), None),
    ],
)
def test_whose_gpu_it_is(text: str, expected: tuple[int, ...] | None) -> None:
    (line,) = lines(text)
    assert owner(line, ON_GPUS, {42: 0, 103: 3}) == expected


def test_two_hosts_have_the_same_addresses() -> None:
    on_gpus = {("a", "00000000:3B:00.0"): (3,), ("b", "00000000:3B:00.0"): (7,)}
    (line,) = lines(f"{UNKNOWN} (on b)")
    assert owner(line, on_gpus, {}) == (7,)
