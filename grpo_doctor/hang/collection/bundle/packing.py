"""Evidence to bytes and back: secrets out, dumps packed, all bounded."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace
from hashlib import sha256
from typing import Final

import msgspec

from grpo_doctor import __version__
from grpo_doctor.bounded import DUMP, DUMPS
from grpo_doctor.hang.verdict import encoded
from grpo_doctor_probes.evidence import (
    Evidence,
    FlightDump,
    HostFacts,
    Job,
)
from grpo_doctor_probes.record.redact import redact_text

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
    clean = replace(
        evidence,
        job=_job(evidence.job),
        logs=tuple(replace(log, lines=tuple(map(redact_text, log.lines))) for log in evidence.logs),
        host=_host(evidence.host),
        dumps=tuple(map(_packed_dump, evidence.dumps)),
        ras=tuple(
            replace(row, text=redact_text(row.text), problem=redact_text(row.problem))
            for row in evidence.ras
        ),
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


def _host(host: HostFacts | None) -> HostFacts | None:
    if host is None:
        return None
    return replace(host, kernel=tuple((age, redact_text(text)) for age, text in host.kernel))


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
        data = _inflated(dump.data, min(budget, MAX_DUMP_BYTES)) if dump.data else b""
        budget -= len(data)
        unpacked.append(replace(dump, data=data))
    return tuple(unpacked)


def _inflated(data: bytes, limit: int) -> bytes:
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
