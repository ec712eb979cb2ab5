"""Opens whatever the user points at: our recordings, or a file of another program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from grpo_doctor.errors import TraceError
from grpo_doctor.importers import (
    nemo_rl_log,
    openrlhf_log,
    slime_log,
    trackers,
    trainer_console,
    trainer_state,
    verl_log,
)
from grpo_doctor.importers.kineto import load as kineto
from grpo_doctor.importers.text import fatal_sentence, is_log, read_head
from grpo_doctor.trace import read as recordings
from grpo_doctor.trace.model import Trace
from grpo_doctor_probes.record.rundir import RANKS, RUN_JSON, TRACE_JSON

_OURS = b'"grpoDoctor"'
_EVENT = re.compile(rb'"traceEvents"|"ph"')
_READS = "`grpo-doctor report --help` lists the files it reads"


class Importer(Protocol):
    """What a module of this package defines."""

    def recognises(self, path: Path, head: bytes) -> bool:
        """Return whether it reads this file, of which `head` is the beginning, unpacked."""

    def load(self, path: Path) -> Trace:
        """Return the trace; raises TraceError, which names the file, the line and the reason."""


_IMPORTERS: tuple[Importer, ...] = (
    trackers,
    trainer_state,
    kineto,
    verl_log,
    openrlhf_log,
    slime_log,
    nemo_rl_log,
    trainer_console,
)
_OF_FOLDERS: tuple[Importer, ...] = (trackers, kineto)


def load(path: str | Path, jobs: int | None = 1) -> Trace:
    """Return the trace at `path`: recorded by us, or made from what another program wrote.

    `jobs` is how many processes read a run directory; None: as many as pay.

    Raises:
        TraceError: nothing there, nothing readable, or an unknown format.
    """
    path = Path(path)
    if path.is_file():
        return _load_file(path)
    ours = (RANKS, RUN_JSON, TRACE_JSON, f"{TRACE_JSON}.gz")
    if path.is_dir() and not any((path / name).exists() for name in ours):
        for importer in _OF_FOLDERS:
            if importer.recognises(path, b""):
                return importer.load(path)
    return recordings.load(path, jobs)


def _load_file(path: Path) -> Trace:
    head = read_head(path)
    if _OURS not in head:
        for importer in _IMPORTERS:
            if importer.recognises(path, head):
                return importer.load(path)
        text = head.strip() and b"\0" not in head
        if text and (is_log(head) or not _EVENT.search(head)):
            fatal = f" {words}." if is_log(head) and (words := fatal_sentence(path)) else ""
            what = "is not a trace and has no step with a reward"
            raise TraceError(f"{path} {what}; {_READS}.{fatal}")
    try:
        return recordings.load(path)
    except TraceError as problem:
        raise TraceError(f"{problem} {_READS}.") from problem
