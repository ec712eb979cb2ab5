"""What an engineer has today, on the same cases: py-spy by eye, and PyTorch's own analyser.

Both get what `attach` had to find out: which processes are the ranks, and their flight recorders.
"""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_doctor_probes.evidence import FlightDump

PY_SPY = str(Path(sys.executable).with_name("py-spy"))
TORCHFRTRACE = str(Path(sys.executable).with_name("torchfrtrace"))
_PATIENCE_S = 10
_ANALYSER_S = 60


@dataclass(frozen=True)
class Other:
    """What another tool said: `blamed` ranks, or how it ended without."""

    said: str
    blamed: tuple[int, ...] = ()

    def right(self, guilty: frozenset[int]) -> bool:
        return bool(self.blamed) and guilty.issuperset(self.blamed)


def by_top_frame(pids: dict[int, int]) -> Other:
    """The rule of an engineer with py-spy: blame the ranks whose innermost line of user code is not
    the majority's, and those that py-spy cannot read.
    """
    with ThreadPoolExecutor(8) as pool:
        places = dict(zip(pids, pool.map(_top_frame, pids.values())))
    groups: dict[str, set[int]] = defaultdict(set)
    for rank, frame in places.items():
        groups[frame].add(rank)
    largest = max(map(len, groups.values()))
    majority = [ranks for ranks in groups.values() if len(ranks) == largest]
    if len(majority) != 1:
        return Other("no majority")
    blamed = tuple(sorted(frozenset(pids) - majority[0]))
    return Other("blame" if blamed else "all at one place", blamed)


def frames_of(pid: int) -> list[dict[str, Any]] | None:
    """The frames of the main thread by py-spy, innermost first; None where it reads none."""
    try:
        done = subprocess.run(
            [PY_SPY, "dump", "--nonblocking", "--json", "--pid", str(pid)],
            capture_output=True, text=True, timeout=_PATIENCE_S, check=False,
        )  # fmt: skip
        threads = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return None
    mains = [t for t in threads if pid in (t["thread_id"], t["os_thread_id"])] or threads
    frames: list[dict[str, Any]] | None = mains[0]["frames"] if mains else None
    return frames


def _top_frame(pid: int) -> str:
    frames = frames_of(pid)
    if frames is None:
        return f"no stack of {pid}"
    for frame in frames:
        if _is_users(frame["filename"]):
            return f"{frame['filename']}:{frame['name']}:{frame['line']}"
    return "no user code"


def _is_users(file: str) -> bool:
    return "/lib/python" not in file and not file.startswith("<") and Path(file).suffix == ".py"


def by_torchfrtrace(dumps: Sequence[FlightDump]) -> Other:
    """PyTorch's analyser on the flight recorders, written as the files that it expects."""
    with tempfile.TemporaryDirectory(prefix="dumps-") as name:
        for dump in dumps:
            if dump.data and dump.rank is not None:
                content = _as_pickled(json.loads(dump.data))
                Path(name, f"trace_{dump.rank}").write_bytes(pickle.dumps(content, protocol=2))
        if not any(Path(name).iterdir()):
            return Other("no dumps")
        try:
            done = subprocess.run(
                [TORCHFRTRACE, name, "--prefix", "trace_"],
                capture_output=True, text=True, timeout=_ANALYSER_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Other(f"no answer in {_ANALYSER_S} s")
    output = done.stdout + done.stderr
    if done.returncode != 0:
        return Other(f"crash: {output.strip().splitlines()[-1][:80]}")
    culprits = set(map(int, re.findall(r"Culprit rank (\d+)", output)))
    for listed in re.findall(r"missing ranks: \{([\d, ]+)\}", output):
        culprits |= {int(rank) for rank in listed.split(",")}
    return Other("blame" if culprits else "no blame", tuple(sorted(culprits)))


def _as_pickled(dump: dict[str, Any]) -> dict[str, Any]:
    """A dump in JSON as torch pickles it: None for a time that is not known, and always entries."""
    entries = [
        entry
        | {
            key: entry.get(key) or None
            for key in ("time_discovered_started_ns", "time_discovered_completed_ns")
        }
        for entry in dump.get("entries", [])
    ]
    return dump | {"entries": entries}
