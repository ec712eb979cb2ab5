"""From raw dumps to recordings of ranks."""

from __future__ import annotations

from collections.abc import Iterable

from grpo_doctor.hang.dumps.documents import load
from grpo_doctor.hang.dumps.entries import Parts
from grpo_doctor.hang.dumps.model import DumpProblem, Recording, Recordings
from grpo_doctor.hang.dumps.normalise import NotADumpError, normalise
from grpo_doctor.hang.dumps.operations import clean
from grpo_doctor.hang.dumps.ranks import settle
from grpo_doctor_probes.evidence import FlightDump


def read(dumps: Iterable[FlightDump]) -> Recordings:
    """Parses and normalises. Never executes anything of a dump; never raises for its content.

    Several dumps of a rank become one recording: the newest of each recorder, which knows whether
    anything moved since the ones before. The order of `dumps` does not matter.
    """
    found: list[Recording] = []
    problems: list[DumpProblem] = []
    parts = Parts()
    for dump in dumps:
        source = clean(dump.source)
        if not dump.data:
            problems.append(DumpProblem(source, dump.rank, clean(dump.problem) or "it is empty"))
            continue
        document = load(dump.data)
        if document.problem:
            problems.append(DumpProblem(source, dump.rank, document.problem))
        if document.data is None:
            continue
        try:
            recording, unusable = normalise(document.data, dump, parts, cut=document.cut)
        except NotADumpError as error:
            problems.append(DumpProblem(source, dump.rank, str(error)))
            continue
        found.append(recording)
        problems += [DumpProblem(source, dump.rank, what) for what in unusable]
    recordings, unsettled = settle(found)
    ordered = sorted((*problems, *unsettled), key=lambda p: (p.rank is None, p.rank or 0, p.source))
    return Recordings(recordings, tuple(ordered))
