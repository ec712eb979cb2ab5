"""Bundles on disk: written whole or not at all, for the user alone; read from any maker, with
nothing unpacked to disk; found in folders, and named after hosts.
"""

from __future__ import annotations

import gzip
import io
import re
import shlex
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from grpo_doctor.bounded import BUNDLE, TAR_HEADER
from grpo_doctor.errors import OutputError, TraceError
from grpo_doctor.files import replacing
from grpo_doctor.hang.collection.bundle.packing import (
    ARCHIVES,
    EVIDENCE,
    PAGE,
    README,
    VERDICT,
    UnreadableError,
    packed,
    unpacked,
)
from grpo_doctor.hang.multihost.join import fits
from grpo_doctor.hang.multihost.visits import same_processes
from grpo_doctor.hang.verdict import Diagnosis, encoded_document
from grpo_doctor_probes.evidence import Evidence, Job
from grpo_doctor_probes.record.rundir import make_private

_README = """\
What grpo-doctor saw of a job, and its verdict:

    {summary}

hang.html         opens in any browser, offline
verdict.json      the verdict for programs
evidence.json.gz  the evidence behind the verdict

Explain it again, on any machine:    grpo-doctor attach --replay {name}

Text that looks like a secret was removed. The bundle contains paths, host names, log lines and the
names of your functions: read it before you share it.
"""
_HOST = "{host}"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._\-]+")
_LONGEST_NAME = 64
_ALL_HOSTS = "all-hosts"
_MOST_OF_A_NAME = 10_000
MAX_FILE_BYTES = MAX_EVIDENCE_BYTES = BUNDLE.bytes
_NAME_TYPES = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip


def read(path: Path) -> Evidence:
    """The evidence of a bundle: its folder, its `.tar.gz`, or its `evidence.json.gz` alone.

    Raises:
        TraceError: it can't be read; the message names the file and the reason.
    """
    try:
        return unpacked(_evidence_json(path))
    except UnreadableError as problem:
        raise TraceError(f"can't read the bundle {path}: {problem}.") from problem
    except (EOFError, zlib.error, tarfile.TarError) as problem:
        raise TraceError(f"can't read the bundle {path}: it is damaged: {problem}.") from problem
    except gzip.BadGzipFile as problem:
        raise TraceError(
            f"{path} is not a bundle: Not a gzipped file. Give what `attach -o` wrote."
        ) from problem
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise TraceError(f"can't read the bundle {path}: {reason}.") from problem


def _evidence_json(path: Path) -> bytes:
    if path.name.endswith(ARCHIVES) and not path.is_dir():
        return _inflated(_from_archive(_content(path)))
    return _inflated(_content(path / EVIDENCE if path.is_dir() else path))


def _content(path: Path) -> bytes:
    if not path.exists():
        raise UnreadableError(f"there is no {path.name} there; give what `attach -o` wrote")
    if not path.is_file():  # a pipe or a device would never end
        raise UnreadableError("it is neither a folder nor a file")
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise UnreadableError(f"it is larger than {MAX_FILE_BYTES // 1024**2} MiB")
    return content


def _inflated(content: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        inflated = file.read(MAX_EVIDENCE_BYTES + 1)
    if len(inflated) > MAX_EVIDENCE_BYTES:
        raise UnreadableError("it unpacks to more than any job's evidence")
    return inflated


def _from_archive(content: bytes) -> bytes:
    """The evidence file of a tar: by its last name, whatever folder it claims to be in."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        bounded = _Bounded(stream, MAX_FILE_BYTES)
        with tarfile.open(fileobj=bounded, mode="r|", tarinfo=_bounded_headers()) as archive:
            for entry in archive:
                if entry.isreg() and Path(entry.name).name == EVIDENCE:
                    file = archive.extractfile(entry)
                    return file.read(MAX_FILE_BYTES) if file else b""
    raise UnreadableError(f"there is no {EVIDENCE} in it; give what `attach -o` wrote")


def _bounded_headers() -> type[tarfile.TarInfo]:
    """Headers of an archive that has few, and names of usual lengths before them."""
    entries, name_bytes = BUNDLE.items, TAR_HEADER.bytes

    class Header(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Header:
            nonlocal entries, name_bytes
            info = super().frombuf(buf, encoding, errors)
            entries -= 1
            if info.type in _NAME_TYPES:
                name_bytes -= max(info.size, TAR_HEADER.bytes // 16)
            if entries < 0 or name_bytes < 0:
                raise UnreadableError("it has more files or longer names than any bundle")
            return info

    return Header


class _Bounded(io.RawIOBase):
    """A stream that refuses to give more than so many bytes."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, limit: int) -> None:
        super().__init__()
        self._stream = stream
        self._left = limit

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        content = self._stream.read(size if 0 <= size <= self._left else self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            raise UnreadableError(f"it unpacks to more than {MAX_FILE_BYTES // 1024**2} MiB")
        return content


def write(folder: Path, evidence: Evidence, diagnosis: Diagnosis, page: bytes = b"") -> Path:
    """Writes a bundle and returns its path; one that is there is replaced.

    Args:
        folder: where; a name that ends in `.tar.gz` or `.tgz` makes one file.
        evidence: what was seen.
        diagnosis: what was concluded from it.
        page: its HTML page; without one the bundle has none.

    Raises:
        OutputError: it can't be written.
    """
    files = _contents(folder.name, evidence, diagnosis, page)
    if folder.name.endswith(ARCHIVES):
        _make_folder(folder.parent)
        with replacing(folder) as file:
            file.write(_archive(folder.name.rpartition(".t")[0], files))
        return folder
    _make_folder(folder)
    for name, content in files.items():
        with replacing(folder / name) as file:
            file.write(content)
    return folder


def _contents(name: str, evidence: Evidence, diagnosis: Diagnosis, page: bytes) -> dict[str, bytes]:
    summary = "".join(c if c.isprintable() else "?" for c in diagnosis.verdict.summary)
    readme = _README.format(summary=summary, name=shlex.quote(name))
    files = {EVIDENCE: packed(evidence), VERDICT: encoded_document(diagnosis), PAGE: page}
    files[README] = readme.encode("utf-8", "replace")
    return {name: content for name, content in files.items() if content}


def _make_folder(folder: Path) -> None:
    try:
        make_private(str(folder))
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise OutputError(
            f"can't create {folder}: {reason}. Choose another folder with -o."
        ) from problem


def _archive(name: str, files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for file_name, content in files.items():
            entry = tarfile.TarInfo(f"{name}/{file_name}")
            entry.size = len(content)
            entry.mode = 0o600
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def with_host(path: Path, job: Job, number: int = 1) -> Path:
    """The path with `{host}` replaced: each host of a job writes a bundle of its own.

    A host may call itself anything: what could lead elsewhere in the file system is left out.
    `number` is in the name from 2 on, for hosts that call themselves alike.
    """
    if _HOST not in str(path):
        return path
    name = _ALL_HOSTS if len(job.placements) > 1 else job.host
    safe = _NOT_IN_NAMES.sub("_", name).lstrip(".-")[:_LONGEST_NAME] or "host"
    return Path(str(path).replace(_HOST, safe if number == 1 else f"{safe}-{number}"))


def own_place(path: Path, job: Job) -> Path:
    """Where this host keeps its bundle, taken before another one of the same name can: that would
    replace it. Its own of an earlier look, and what is of another job, is replaced.
    """
    if _HOST not in str(path):
        return path
    places = (with_host(path, job, number) for number in range(1, _MOST_OF_A_NAME))
    chosen = next((folder for folder in places if _reserve(folder) or _is_free(folder, job)), None)
    if chosen is None:
        raise OutputError(
            f"{with_host(path, job)} and all similar names are taken. Choose another with -o."
        )
    return chosen


def _reserve(folder: Path) -> bool:
    """Return whether the folder was free and is now ours; a later write names any error."""
    try:
        if not folder.parent.is_dir():
            make_private(str(folder.parent))
        if folder.name.endswith(ARCHIVES):
            folder.open("xb").close()
        else:
            folder.mkdir(mode=0o700)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def _is_free(folder: Path, job: Job) -> bool:
    """Whether what is there may be replaced. What can't be read, another host may be writing."""
    try:
        owner = read(folder).job
    except TraceError:
        return False
    return same_processes(owner, job) or not fits(owner, job)


def bundles_in(paths: Sequence[Path]) -> tuple[Path, ...]:
    """These bundles, and those in a folder that is no bundle itself, each once."""
    bundles: dict[Path, None] = {}
    for path in paths:
        inner = [] if _may_be_bundle(path) else _inside(path)
        bundles.update(dict.fromkeys(inner or [path]))
    return tuple(bundles)


def _inside(folder: Path) -> list[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [entry for entry in entries if _may_be_bundle(entry)]


def _may_be_bundle(path: Path) -> bool:
    try:
        if path.is_dir():
            return (path / EVIDENCE).exists()
        return path.name.endswith(ARCHIVES) and path.is_file()
    except OSError:  # another user's, whom reading it names
        return True
