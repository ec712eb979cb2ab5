"""When each rank entered its collectives, from torch's flight recorder, for those that return at
once.

Asked for with GRPO_DOCTOR_FLIGHT=SECONDS: after a step that ends at least so long after the last
reading, all that the flight recorder holds (its newest 2,000 collectives by default) is copied
into `ranks/00003.flight.jsonl` as it is. Nothing is parsed here, and nothing is done while a
collective is started. A full recorder takes 10 to 30 ms to dump, so the next look waits for a
thousand times as long as the last one took.

NCCL's recorder of a torch below 2.14 is left alone: there a dump looks at events that the watchdog
may free meanwhile (pytorch#192232). From 2.14 on it asks CUDA for them, which spoils a graph that
another thread captures unless this one is in relaxed mode (`capturemode`).
"""

from __future__ import annotations

import os
import sys
from time import monotonic_ns

from grpo_doctor_probes.record import clock
from grpo_doctor_probes.record.rundir import ENTRIES_SUFFIX, ENTRIES_VARIABLE

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PATIENCE = 1000  # times what a look took: a thousandth of the time at most
_AFTER_AN_ERROR_NS = 60_000_000_000
_MAX_BYTES = 64 << 20  # a look is a megabyte
_NCCL_DUMP, _DUMP = "_dump_nccl_trace_json", "_dump_fr_trace_json"
_SAFE_SINCE = (2, 14)
_TOO_OLD = (
    "grpo-doctor: GRPO_DOCTOR_FLIGHT has no effect here: torch {} can crash when NCCL's flight "
    "recorder is read while the job runs (pytorch#192232). Use torch 2.14 or newer.\n"
)
_NO_MODE = (
    "grpo-doctor: GRPO_DOCTOR_FLIGHT has no effect here: no CUDA runtime is found in the process, "
    "so reading NCCL's flight recorder could spoil a CUDA graph that is being captured.\n"
)


class EntryTimes:
    """Looks into the flight recorder after steps, not more often than every `seconds`."""

    def __init__(self, stem: str, seconds: float) -> None:
        self._path = stem + ENTRIES_SUFFIX
        self._interval_ns = max(0, int(seconds * 1e9))
        self._next_ns = monotonic_ns() + self._interval_ns
        self._written = 0
        self._refused = False

    @classmethod
    def if_asked(cls, stem: str) -> EntryTimes | None:
        """Return one that writes next to the span file `stem`, if the environment asks for it."""
        try:
            return cls(stem, float(os.environ[ENTRIES_VARIABLE]))
        except (KeyError, ValueError):
            return None

    def after_step(self) -> None:
        """Look if it is time to. Raises whatever torch or the disk does."""
        if monotonic_ns() >= self._next_ns and not self._refused:
            self.look()

    def look(self) -> None:
        """Copy what the flight recorder holds, if torch is there and has one."""
        dump = self._dump()
        if dump is None or self._written > _MAX_BYTES:
            return
        start_ns = monotonic_ns()
        self._next_ns = start_ns + self._interval_ns + _AFTER_AN_ERROR_NS
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
        self._next_ns = end_ns + max(self._interval_ns, _PATIENCE * (end_ns - start_ns))

    def _dump(self) -> Callable[[bool, bool], str | bytes] | None:
        """Torch's own function, without importing anything. None where it must not be called."""
        if self._refused:
            return None
        module = sys.modules.get("torch._C._distributed_c10d")
        of_nccl: Callable[[bool, bool], str | bytes] | None = getattr(module, _NCCL_DUMP, None)
        if of_nccl is None or cuda_in_use() is None:  # else NCCL's recorder has what there is
            return getattr(module, _DUMP, None)
        version = str(getattr(sys.modules.get("torch"), "__version__", ""))
        if _numbers(version) < _SAFE_SINCE:
            self._refuse(_TOO_OLD.format(version or "of an unknown version"))
            return None
        from grpo_doctor_probes.record.capturemode import capture_mode  # noqa: PLC0415 - seldom needed

        mode = capture_mode()
        if mode is None:
            self._refuse(_NO_MODE)
            return None

        def relaxed(collectives: bool, only_active: bool) -> str | bytes:
            with mode:
                return of_nccl(collectives, only_active)

        return relaxed

    def _refuse(self, reason: str) -> None:
        """Look no more, and say why, once."""
        self._refused = True
        sys.stderr.write(reason)


def cuda_in_use() -> Any:
    """`torch.cuda` once the host program has initialised CUDA; None before. Never imports."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    # `is_available` would ask the driver, which spoils CUDA for children forked later.
    is_initialized = getattr(cuda, "is_initialized", None)
    return cuda if is_initialized is not None and is_initialized() else None


def _numbers(version: str) -> tuple[int, int]:
    """(2, 14) of `2.14.1+cu129`; (0, 0) where unknown."""
    major, minor = (*version.split("."), "")[:2]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
