"""How far an exception gets that a call throws: the unwinder itself is asked, in the thread."""

from __future__ import annotations

import struct
import time
from dataclasses import replace

from grpo_doctor_probes.flight.borrow import Borrowed, Place
from grpo_doctor_probes.flight.injection import find_bare_return
from grpo_doctor_probes.flight.machine import SCRATCH_BYTES, Call
from grpo_doctor_probes.memory.access import Mapping, mapped
from tests.unit.probes.flight.sleeper import MACHINE, Target


def callers(target: Target, place: Place) -> list[int]:
    """The return addresses of a call into the helper, as far as it can be unwound."""
    with Borrowed(place, target.helper) as thread:
        at, most = thread.scratch, SCRATCH_BYTES // 8
        walk = Call(target.function("backtrace"), (at, most), scratch=bytes(SCRATCH_BYTES))
        assert thread.call(walk, time.monotonic() + 5) == "returned"
        found = struct.unpack(f"<{most}Q", place.memory.read(at, SCRATCH_BYTES))
    return [address for address in found if address]


def test_it_does_not_get_to_what_the_thread_was_in(target: Target) -> None:
    with target.place() as place:
        assert place.by
        ends = callers(target, place)
        goes_on = callers(target, replace(place, by=0))
    assert place.by not in ends[:-1]
    assert place.return_to not in ends
    assert len(ends) < len(goes_on)
    assert target.ask("hello") == "awake hello"


def test_where_no_library_has_such_a_return_there_is_none(target: Target) -> None:
    code = [m for m in mapped(target.pid) if m.name == MACHINE.return_library]  # has no `_fini`
    no_library = [m for m in mapped(target.pid) if not m.path and "r" in m.rights][:1]
    unreadable = [Mapping(0, 4096, "r-xp", 0, 1, "/gone.so")]
    with target.place() as place:
        as_if_files = [replace(m, path="/data", offset=0) for m in no_library]
        maps = [*as_if_files, *unreadable, *(code if MACHINE.name == "x86_64" else ())]
        assert find_bare_return(MACHINE, maps, place.memory) == 0


def test_it_is_a_return_and_nothing_else(target: Target) -> None:
    with target.place() as place:
        code = place.memory.read(place.by, len(MACHINE.bare_return))
    assert code == MACHINE.bare_return
