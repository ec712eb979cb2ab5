"""Writing a bundle: whole or not there, and readable by the user alone."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Mapping
from pathlib import Path

from grpo_doctor.errors import OutputError
from grpo_doctor.files import replacing
from grpo_doctor.hang.collection.bundle.packing import packed
from grpo_doctor.hang.collection.bundle.parts import ARCHIVES, EVIDENCE, PAGE, README, VERDICT
from grpo_doctor.hang.verdict import Diagnosis, encoded_document
from grpo_doctor_probes.evidence import Evidence

_README = """\
What grpo-doctor saw of a job, and its verdict:

    {summary}

hang.html         opens in any browser, offline
verdict.json      the same for programs
evidence.json.gz  what the verdict was made from

Explain it again, on any machine:    grpo-doctor attach --replay {name}

What looks like a secret is taken out. Paths, host names, log lines and the names of your functions
are in it: look before you post it.
"""


def write(folder: Path, evidence: Evidence, diagnosis: Diagnosis, page: bytes = b"") -> Path:
    """Writes a bundle and returns its path; one that is there is replaced.

    Args:
        folder: where; a name that ends in `.tar.gz` or `.tgz` makes one file.
        evidence: what was seen.
        diagnosis: what was said about it.
        page: its HTML page; without one the bundle has none.

    Raises:
        OutputError: it can't be written.
    """
    parts = _parts(folder.name, evidence, diagnosis, page)
    if folder.name.endswith(ARCHIVES):
        _make_folder(folder.parent)
        with replacing(folder) as file:
            file.write(_archive(folder.name.rpartition(".t")[0], parts))
        return folder
    _make_folder(folder)
    for name, content in parts.items():
        with replacing(folder / name) as file:
            file.write(content)
    return folder


def _parts(name: str, evidence: Evidence, diagnosis: Diagnosis, page: bytes) -> dict[str, bytes]:
    summary = "".join(c if c.isprintable() else "?" for c in diagnosis.verdict.summary)
    readme = _README.format(summary=summary, name=shlex.quote(name))
    parts = {EVIDENCE: packed(evidence), VERDICT: encoded_document(diagnosis), PAGE: page}
    parts[README] = readme.encode("utf-8", "replace")
    return {name: content for name, content in parts.items() if content}


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise OutputError(f"can't make {folder}: {reason}. Choose another with --out.") from problem


def _archive(name: str, parts: Mapping[str, bytes]) -> bytes:
    packed_parts = io.BytesIO()
    with tarfile.open(fileobj=packed_parts, mode="w:gz") as archive:
        for part, content in parts.items():
            entry = tarfile.TarInfo(f"{name}/{part}")
            entry.size = len(content)
            entry.mode = 0o600
            archive.addfile(entry, io.BytesIO(content))
    return packed_parts.getvalue()
