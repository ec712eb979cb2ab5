"""A bundle: what was seen of a job, in a folder or a `.tar.gz`, to explain again anywhere.

::

    evidence.json.gz    everything that was seen, redacted; what `attach --replay` reads
    verdict.json        the document of `attach --json`
    hang.html           the same as a page
    README.txt          what this is

Any reader of it sees log lines, paths and stacks of the job: the files are the user's alone.
"""

from __future__ import annotations

import gzip
import io
import re
import shlex
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from grpo_doctor import __version__
from grpo_doctor.bounded import BUNDLE, DUMP, DUMPS, TAR_HEADER
from grpo_doctor.errors import OutputError, TraceError
from grpo_doctor.files import replacing
from grpo_doctor.hang.verdict import Diagnosis, encoded, encoded_document
from grpo_doctor_probes.evidence import Evidence, FlightDump, Job
from grpo_doctor_probes.record.redact import redact_text
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
        if path.name.endswith(ARCHIVES) and not path.is_dir():
            return unpacked(_inflated(_from_archive(_content(path))))
        return unpacked(_inflated(_content(path / EVIDENCE if path.is_dir() else path)))
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
    files = io.BytesIO(_inflated(content))
    with tarfile.open(fileobj=files, mode="r|", tarinfo=_bounded_headers()) as archive:
        for entry in archive:
            if entry.isreg() and Path(entry.name).name == EVIDENCE:
                file = archive.extractfile(entry)
                return file.read() if file else b""
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


def write(folder: Path, evidence: Evidence, diagnosis: Diagnosis, page: bytes = b"") -> Path:
    """Writes a bundle and returns its path; one that is there is replaced, unless it is of other
    ranks of the same job on a host of the same name.

    Args:
        folder: where; a name that ends in `.tar.gz` or `.tgz` makes one file.
        evidence: what was seen.
        diagnosis: what was concluded from it.
        page: its HTML page; without one the bundle has none.

    Raises:
        OutputError: it can't be written.
    """
    if _is_of_namesake(folder, evidence.job):
        raise OutputError(
            f"{folder} has the evidence of another host that is called {evidence.job.host} too. "
            "Choose another name for this one with -o."
        )
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


def _is_of_namesake(folder: Path, job: Job) -> bool:
    try:
        owner = read(folder).job
    except TraceError:  # nothing is there, or nothing that can be read
        return False
    ranks, others = ({m.rank for m in each.members if m.rank is not None} for each in (job, owner))
    is_same_job = (owner.host, owner.world_size) == (job.host, job.world_size)
    return is_same_job and bool(ranks and others) and ranks.isdisjoint(others)


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


def with_host(path: Path, job: Job) -> Path:
    """The path with `{host}` replaced: each host of a job writes a bundle of its own.

    A host may call itself anything: what could lead elsewhere in the file system is left out.
    """
    if _HOST not in str(path):
        return path
    name = _ALL_HOSTS if len(job.placements) > 1 else job.host
    safe = _NOT_IN_NAMES.sub("_", name).lstrip(".-")[:_LONGEST_NAME] or "host"
    return Path(str(path).replace(_HOST, safe))


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


EVIDENCE: Final = "evidence.json.gz"
VERDICT: Final = "verdict.json"
PAGE: Final = "hang.html"
README: Final = "README.txt"
ARCHIVES: Final = (".tar.gz", ".tgz")  # how a bundle in one file may be called
SCHEMA: Final = 1

# A bundle stays under 1 MB per rank. A full ring of 2,000 entries is 940 kB of JSON, and about a
# twentieth of it packed: what is larger is no recorder that we know.
MAX_PACKED_DUMP_BYTES: Final = 800_000

# What a stranger's bundle may make us hold: 64 ranks of everything need a hundredth of it.
MAX_DUMP_BYTES: Final = DUMP.bytes
MAX_ALL_DUMPS_BYTES: Final = DUMPS.bytes
MAX_RANKS: Final = 200_000


class Head(msgspec.Struct, frozen=True):
    """What every version's evidence file says first."""

    schema: int


class Envelope(msgspec.Struct, frozen=True):
    """The evidence file. The dumps in it are packed with zlib, each for itself."""

    schema: int
    tool: str
    evidence: Evidence


class UnreadableError(Exception):
    """Bytes that are no evidence; the message is the reason."""


def packed(evidence: Evidence) -> bytes:
    """The evidence file's content."""
    host = evidence.host
    if host is not None:
        host = replace(host, kernel=tuple((age, redact_text(text)) for age, text in host.kernel))
    clean = replace(
        evidence,
        job=_job(evidence.job),
        logs=tuple(replace(log, lines=tuple(map(redact_text, log.lines))) for log in evidence.logs),
        host=host,
        dumps=tuple(map(_packed_dump, evidence.dumps)),
    )
    envelope = Envelope(SCHEMA, f"grpo-doctor {__version__}", clean)
    return gzip.compress(encoded(envelope), compresslevel=6, mtime=0)


def unpacked(content: bytes) -> Evidence:
    """The evidence of an evidence file's JSON (already out of its gzip).

    Raises:
        UnreadableError: it is damaged, of a newer version, or not to be believed.
    """
    try:
        head = msgspec.json.decode(content, type=Head)
        if head.schema != SCHEMA:
            raise UnreadableError(
                f"it has schema {head.schema}, but this version reads schema {SCHEMA}; use the "
                "grpo-doctor that wrote it, or a newer one"
            )
        evidence = msgspec.json.decode(content, type=Envelope).evidence
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise UnreadableError(f"it is damaged: {problem}") from problem
    size = evidence.job.world_size or 0
    if size > MAX_RANKS:  # a list of all ranks is made later
        raise UnreadableError(f"its job has {size} ranks, more than the maximum of {MAX_RANKS}")
    return replace(evidence, dumps=_unpacked_dumps(evidence.dumps))


def _job(job: Job) -> Job:
    members = (replace(m, command=redact_text(m.command)) for m in job.members)
    placements = (
        replace(placement, run_id=_distinct_run_id(placement.run_id))
        for placement in job.placements
    )
    notes = tuple(map(redact_text, job.notes))
    return replace(job, members=tuple(members), placements=tuple(placements), notes=notes)


def _distinct_run_id(run_id: str) -> str:
    """A run id without its secret: bundles of one job must still be known as such."""
    clean = redact_text(run_id)
    return run_id if clean == run_id else f"{clean} {sha256(run_id.encode()).hexdigest()[:8]}"


def _packed_dump(dump: FlightDump) -> FlightDump:
    if not dump.data:
        return dump
    data = zlib.compress(dump.data, 6)
    if len(data) <= MAX_PACKED_DUMP_BYTES:
        return replace(dump, data=data)
    size = f"{len(dump.data) / 1e6:.1f} MB"
    return replace(
        dump, data=b"", problem=f"its {size} were too large for the bundle and were left out"
    )


def _unpacked_dumps(dumps: tuple[FlightDump, ...]) -> tuple[FlightDump, ...]:
    budget = MAX_ALL_DUMPS_BYTES
    unpacked = []
    for dump in dumps:
        data = _dump_of(dump.data, min(budget, MAX_DUMP_BYTES)) if dump.data else b""
        budget -= len(data)
        unpacked.append(replace(dump, data=data))
    return tuple(unpacked)


def _dump_of(data: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(data, limit + 1)
    except zlib.error as problem:
        raise UnreadableError(f"a flight-recorder dump in it is damaged: {problem}") from problem
    if len(content) > limit:
        raise UnreadableError(
            "a flight-recorder dump in it unpacks to more than any recorder holds"
        )
    if not inflater.eof:
        raise UnreadableError("a flight-recorder dump in it is truncated")
    return content
