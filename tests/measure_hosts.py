"""`python -m tests.measure_hosts [HOSTS [PROCESSES_BESIDE_EACH_RANK]]`: what joining costs."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import msgspec

from grpo_doctor.cli.attach_evidence import replayed
from grpo_doctor.hang.collection import bundle
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.multihost.join import with_hosts
from grpo_doctor.hang.verdict import encoded_document
from grpo_doctor_reports.hang.page import hang_page
from grpo_doctor_reports.hang.terminal import hang_text
from tests.evidence import EvidenceBuilder
from tests.several_hosts import on_hosts

PER_HOST = 8
_FIRST_HELPER = 1_000_000


def main(hosts: int, beside: int) -> None:
    """Writes bundles of so many hosts, each with 8 ranks, and times what `--replay` does."""
    build = EvidenceBuilder(ranks=hosts * PER_HOST)
    build.rank(hosts * PER_HOST // 2).state = "T"
    for rank in range(hosts * PER_HOST):
        for number in range(beside):
            child = build.child(rank, "dataloader", pid=_FIRST_HELPER + rank * beside + number)
            child.stack = build.rank(0).stack
    with tempfile.TemporaryDirectory() as folder:
        for part in on_hosts(build.build(), PER_HOST):
            bundle.write(Path(folder) / part.job.host, part, _NOTHING)
        start_s = time.process_time()
        evidence = replayed([Path(folder)])
        joined_s = time.process_time()
        diagnosis = with_hosts(diagnose(evidence), evidence.job)
        judged_s = time.process_time()
    document = msgspec.to_builtins(diagnosis)
    rows = {
        "processes": len(evidence.job.members),
        "read and joined, s of CPU": round(joined_s - start_s, 2),
        "judged, s of CPU": round(judged_s - joined_s, 2),
        "JSON, kB": len(encoded_document(diagnosis)) // 1000,
        "page, kB": len(hang_page(document)) // 1000,
        "text, lines": len(hang_text(document, 100, False).splitlines()),
    }
    lines = [diagnosis.verdict.summary, *(f"{name:26} {value}" for name, value in rows.items())]
    sys.stdout.write("\n".join(lines) + "\n")


_NOTHING = diagnose(EvidenceBuilder(ranks=2).build())

if __name__ == "__main__":
    main(*[int(text) for text in sys.argv[1:]] or [128, 0])
