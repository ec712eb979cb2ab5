"""The verdicts that the watchdog left in a run directory, so that the report can link them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from grpo_doctor.hang.collection.bundle.packing import PAGE, VERDICT
from grpo_doctor_probes.record.rundir import NODES
from grpo_doctor_probes.supervisor.watchdog import FOLDER
from grpo_doctor_reports.schema.attach import SCHEMA, AttachDocument
from grpo_doctor_reports.schema.report import HangEntry

_MOST = 50
_MOST_STEPS = 3
# The page has these as well; in a report the process has gone.
_OF_A_PROCESS = re.compile(r"\bkill\b|\bpid\b|/proc/\d", re.IGNORECASE)
_LARGEST_BYTES = 32 << 20


def hang_entries(recording: Path) -> list[HangEntry]:
    """Return each verdict below `recording` that has a page; none outside a run directory.

    One that can't be read is linked without text: its page says more.
    """
    if not recording.is_dir():
        return []
    every = f"{FOLDER}/*/{PAGE}"
    pages = [*sorted(recording.glob(every)), *sorted(recording.glob(f"{NODES}/*/{every}"))]
    return [_entry(page, recording) for page in pages[:_MOST]]


def _entry(page: Path, recording: Path) -> HangEntry:
    file = _read(page.with_name(VERDICT))
    return HangEntry(
        page=page.relative_to(recording).as_posix(),
        headline=file.verdict.summary,
        state=file.verdict.state,
        next_steps=[
            fix.text
            for fix in file.verdict.fixes
            if fix.text and not _OF_A_PROCESS.search(fix.text)
        ][:_MOST_STEPS],
        taken_unix_ns=file.taken_unix_ns,
    )


def _read(path: Path) -> AttachDocument:
    try:
        if path.stat().st_size <= _LARGEST_BYTES:
            return msgspec.json.decode(path.read_bytes(), type=AttachDocument)
    except (OSError, msgspec.MsgspecError):
        pass
    return AttachDocument(schema=SCHEMA)
