"""Reading a bundle that anybody may have made. Nothing is ever unpacked to disk."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from pathlib import Path
from typing import IO

from grpo_doctor.errors import TraceError
from grpo_doctor.hang.collection.bundle.packing import UnreadableError, unpacked
from grpo_doctor.hang.collection.bundle.parts import (
    ARCHIVES,
    EVIDENCE,
    MAX_EVIDENCE_BYTES,
    MAX_FILE_BYTES,
)
from grpo_doctor_probes.evidence import Evidence


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
            f"{path} is no bundle: Not a gzipped file. Give what `attach --out` wrote."
        ) from problem
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise TraceError(f"can't read the bundle {path}: {reason}.") from problem


def _evidence_json(path: Path) -> bytes:
    if path.is_dir():
        return _inflated(_content(path / EVIDENCE))
    if path.name.endswith(ARCHIVES):
        return _inflated(_from_archive(_content(path)))
    return _inflated(_content(path))


def _content(path: Path) -> bytes:
    if not path.exists():
        raise UnreadableError(f"there is no {path.name} there; give what `attach --out` wrote")
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
        raise UnreadableError("it unpacks to more than any job's evidence has")
    return inflated


def _from_archive(content: bytes) -> bytes:
    """The evidence file of a tar: by its last name, whatever folder it claims to be in."""
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        bounded = _Bounded(stream, MAX_FILE_BYTES)
        with tarfile.open(fileobj=bounded, mode="r|") as archive:
            for entry in archive:
                if entry.isreg() and Path(entry.name).name == EVIDENCE:
                    file = archive.extractfile(entry)
                    return file.read(MAX_FILE_BYTES) if file else b""
    raise UnreadableError(f"there is no {EVIDENCE} in it; give what `attach --out` wrote")


class _Bounded(io.RawIOBase):
    """A stream that refuses to give more than so many bytes."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, at_most: int) -> None:
        super().__init__()
        self._stream = stream
        self._left = at_most

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        content = self._stream.read(size if 0 <= size <= self._left else self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            raise UnreadableError(f"it unpacks to more than {MAX_FILE_BYTES // 1024**2} MiB")
        return content
