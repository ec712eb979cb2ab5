"""What is said of every recorded job, word for word: `said.json`, kept by a command.

Each job has a line on its evidence as it was, one on that evidence seen worse in one way of
`degraded`, and every third one a line on its flight recorders alone. An intended change is taken
over by `python -m tests.corpus accept`; read its diff.
"""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import msgspec
from msgspec.structs import replace

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import encoded, encoded_document
from grpo_doctor_probes.evidence import Evidence
from tests.corpus.degraded import variants
from tests.corpus.items import Item
from tests.corpus.score import evidence_of

FILE = Path(__file__).with_name("said.json")
Said = dict[str, str]  # "source/job", or "source/job: how it was seen worse": the line


def lines(item: Item) -> Said:
    """Return the lines of a job."""
    evidence = evidence_of(item)
    name = f"{item.truth.source}/{item.name}"
    worse = list(variants(evidence))
    number = crc32(item.name.encode())
    chosen = number % max(len(worse), 1)
    views = {"": evidence, **dict(worse[chosen : chosen + 1])}
    if evidence.dumps and number % 3 == 0:
        alone = Evidence(evidence.job, evidence.taken_unix_ns, dumps=evidence.dumps)
        views["recorders alone"] = alone
    return {f"{name}: {how}" if how else name: line(view) for how, view in views.items()}


def line(evidence: Evidence) -> str:
    """`stuck rank-stopped [2] proven 1f2e3d4c: Rank 2 is stopped ...`. The number is that of all
    that is said besides: evidence, fixes, the table of processes, the graph and the stacks. What
    a word of certainty was worth is left out: `python -m tests.corpus worth` counts it.
    """
    diagnosis = diagnose(evidence)
    verdict = diagnosis.verdict
    unlike = {"cost": type(diagnosis.cost)(), "verdict": replace(verdict, confidence=0.0)}
    rest = crc32(encoded(replace(diagnosis, **unlike)))
    words = (verdict.state, verdict.cause or "-", list(verdict.culprits), verdict.certainty or "-")
    return f"{' '.join(map(str, words))} {rest:08x}: {verdict.summary}"


def document(item: Item) -> str:
    """Return all that is said of a job as it was seen."""
    diagnosis = diagnose(evidence_of(item))
    return f"{item.truth.source}/{item.name}\n{encoded_document(diagnosis).decode()}"


def recorded(file: Path = FILE) -> Said:
    """Return what was said when it was last accepted."""
    return msgspec.json.decode(file.read_bytes(), type=Said)


def accept(said: Said, file: Path = FILE) -> None:
    """Keep what is said now."""
    content = msgspec.json.encode(dict(sorted(said.items())))
    file.write_bytes(msgspec.json.format(content, indent=1) + b"\n")
