"""When each rank entered its collectives, from torch's flight recorder, for those that return at
once.

Asked for with GRPO_DOCTOR_FLIGHT=SECONDS: after a step that ends at least so long after the last
look, all that the flight recorder holds (its newest 2,000 collectives by default) is copied into
`ranks/00003.flight.jsonl` as it is. Nothing is parsed here, and nothing is done while a collective
is started. A full recorder takes 10 to 30 ms to dump, so the next look waits for a thousand times
as long as the last one took.
"""

from __future__ import annotations

import os
import sys
from time import monotonic_ns

from grpo_doctor_probes import clock
from grpo_doctor_probes.rundir import ENTRIES_SUFFIX, ENTRIES_VARIABLE

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE = 1000  # times what a look took: a thousandth of the time at most
_AFTER_AN_ERROR_NS = 60_000_000_000
_MAX_BYTES = 64 << 20  # a look is a megabyte
_DUMPS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")


class EntryTimes:
    """Looks into the flight recorder after steps, not more often than every `seconds`."""

    def __init__(self, stem: str, seconds: float) -> None:
        self._path = stem + ENTRIES_SUFFIX
        self._interval_ns = max(0, int(seconds * 1e9))
        self._next_ns = monotonic_ns() + self._interval_ns
        self._written = 0

    @classmethod
    def if_asked(cls, stem: str) -> EntryTimes | None:
        """One that writes beside the span file `stem`, if the environment asks for it."""
        try:
            return cls(stem, float(os.environ[ENTRIES_VARIABLE]))
        except (KeyError, ValueError):
            return None

    def after_step(self) -> None:
        """Looks if it is time to. Raises whatever torch or the disk does."""
        if monotonic_ns() >= self._next_ns:
            self.look()

    def look(self) -> None:
        """Copies what the flight recorder holds, if torch is there and has one."""
        dump = _dump()
        if dump is None or self._written > _MAX_BYTES:
            return
        begun_ns = monotonic_ns()
        self._next_ns = begun_ns + self._interval_ns + _AFTER_AN_ERROR_NS
        content = dump(True, False)
        text = content.encode() if isinstance(content, str) else bytes(content)
        reading = clock.read()
        head = f'{{"monotonic_ns":{reading["monotonic_ns"]},"unix_ns":{reading["unix_ns"]},"dump":'
        line = head.encode() + text.replace(b"\n", b" ") + b"}\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            self._written += os.write(file, line)
        finally:
            os.close(file)
        end_ns = monotonic_ns()
        self._next_ns = end_ns + max(self._interval_ns, _PATIENCE * (end_ns - begun_ns))


def _dump() -> Callable[[bool, bool], str | bytes] | None:
    """Torch's own function, without importing anything."""
    module = sys.modules.get("torch._C._distributed_c10d")
    return next((found for name in _DUMPS if (found := getattr(module, name, None))), None)
