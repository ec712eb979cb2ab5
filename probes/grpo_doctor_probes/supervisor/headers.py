"""The headers of this host's span files, read once a tick for all who look at them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from grpo_doctor_probes import live
from grpo_doctor_probes.rundir import RANKS, SPANS_SUFFIX


class Headers:
    """Reads `run_dir/ranks/*.spans`."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / RANKS

    def read(self, main_pids: Collection[int] = ()) -> list[live.Header]:
        """One header per rank, in order; a file that can't be read is left out.

        A rank that was restarted writes `00003.<pid>.spans` beside its first file, and so does a
        forked worker; they are told apart by `main_pids`, the processes that train.
        """
        newest: dict[int, live.Header] = {}
        for path in sorted(self._folder.glob(f"[0-9]*{SPANS_SUFFIX}")):
            if not _is_wanted(path.name, main_pids):
                continue
            try:
                header = live.read_header(path)
            except (OSError, ValueError):
                continue
            known = newest.get(header.rank)
            if known is None or known.start_monotonic_ns < header.start_monotonic_ns:
                newest[header.rank] = header
        return [newest[rank] for rank in sorted(newest)]


def _is_wanted(name: str, main_pids: Collection[int]) -> bool:
    _, *rest = name.removesuffix(SPANS_SUFFIX).split(".")
    return not rest or (rest[0].isdecimal() and int(rest[0]) in main_pids)
