"""The headers of this host's span files, read once a tick for all who look at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from grpo_doctor_probes import live
from grpo_doctor_probes.procfs import own_number
from grpo_doctor_probes.rundir import RANKS, SPANS_SUFFIX


class Headers:
    """Reads `run_dir/ranks/*.spans`."""

    def __init__(self, run_dir: Path, proc: Path = Path("/proc")) -> None:
        self._folder, self._proc = run_dir / RANKS, proc
        # By rank, and the number that a process writes: in a container it has one of its own there,
        # which a process of another container or host may have as well.
        self._pids: dict[tuple[int, int], int] = {}

    def read(self, ranks: Mapping[int, int] | None = None) -> list[live.Header]:
        """One header per rank, in order; a file that can't be read is left out.

        A rank that was restarted writes `00003.<pid>.spans` beside its first file, and so does a
        forked worker; they are told apart by `ranks`, of the processes that train.
        """
        trains = ranks or {}
        self._note_numbers(trains)
        newest: dict[int, live.Header] = {}
        for path in sorted(self._folder.glob(f"[0-9]*{SPANS_SUFFIX}")):
            if not self._is_wanted(path.name, trains):
                continue
            try:
                header = live.read_header(path)
            except (OSError, ValueError):
                continue
            header = replace(header, pid=self._pid(header.rank, header.pid))
            known = newest.get(header.rank)
            if known is None or known.start_monotonic_ns < header.start_monotonic_ns:
                newest[header.rank] = header
        return [newest[rank] for rank in sorted(newest)]

    def _note_numbers(self, ranks: Mapping[int, int]) -> None:
        for pid, rank in ranks.items():
            if (own := own_number(self._proc / str(pid))) is not None:
                self._pids[rank, own] = pid

    def _pid(self, rank: int, written: int) -> int:
        return self._pids.get((rank, written), written)

    def _is_wanted(self, name: str, ranks: Mapping[int, int]) -> bool:
        rank, *rest = name.removesuffix(SPANS_SUFFIX).split(".")
        if not rest or not (rank.isdecimal() and rest[0].isdecimal()):
            return not rest
        return self._pid(int(rank), int(rest[0])) in ranks
