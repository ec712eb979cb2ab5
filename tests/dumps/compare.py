"""Our matcher beside PyTorch's `torchfrtrace` on the same dumps.

    python -m tests.dumps.compare [FOLDER]

Simulated NCCL dumps of every case, once as they are and once with other rank numbers, and the real
gloo dumps in FOLDER (from `python -m tests.dumps.real FOLDER`) where it is given.
"""

from __future__ import annotations

import json
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_doctor.hang import dumps
from grpo_doctor_probes.evidence import FlightDump
from tests.dumps.cases import CASES, Case, slug
from tests.dumps.formats import document
from tests.dumps.simulator import Call, Halt, Job, Program, job
from tests.verdicts import of_dumps

AT_MOST_S = 600
SHUFFLE = 7


@dataclass(frozen=True)
class Row:
    """One case: whose fault it is, and what each tool says. `theirs` None: it crashed."""

    corpus: str
    case: str
    truth: tuple[int, ...]
    ours: tuple[int, ...]
    our_class: str
    theirs: tuple[int, ...] | None
    their_crash: str

    @property
    def ours_right(self) -> bool:
        """Exactly the culprits, or nobody where nothing is wrong."""
        return self.ours == self.truth

    @property
    def theirs_right(self) -> bool:
        """The same, for the other tool."""
        return self.theirs == self.truth


def relabelled(original: Job, to: Sequence[int]) -> Job:
    """The same job with every rank called otherwise."""
    groups = {name: [to[r] for r in members] for name, members in original.groups.items()}

    def program(old: Program) -> list[Call | Halt]:
        return [
            Call(c.op, c.group, c.elements, c.dtype, c.line, to[c.peer], c.wait, c.compute_ns)
            if isinstance(c, Call) and c.peer is not None
            else c
            for c in old
        ]

    return job(groups, {to[r]: program(own.program) for r, own in original.ranks.items()}).run()


def rows(real: Path | None = None) -> list[Row]:
    """Runs both tools over all corpora."""
    with tempfile.TemporaryDirectory() as scratch:
        prepared = list(_prepare(Path(scratch), real))
        theirs = _stock([folder for folder, *_ in prepared])
        return [
            _row(corpus, case, truth, folder, theirs[str(folder)])
            for folder, corpus, case, truth in prepared
        ]


def _prepare(scratch: Path, real: Path | None) -> Iterator[tuple[Path, str, Case, tuple[int, ...]]]:
    for number, case in enumerate(CASES):
        built = case.build()
        to = list(range(len(built.ranks)))
        yield _written(scratch / f"{number}", built), "simulated NCCL", case, _truth(case, to)
        random.Random(SHUFFLE + number).shuffle(to)
        moved = relabelled(built, to)
        corpus = "simulated NCCL, ranks renumbered"
        yield _written(scratch / f"{number}r", moved), corpus, case, _truth(case, to)
        recorded = _pickles(real / slug(case.name)) if real else []
        if len(recorded) == len(to):
            target = scratch / f"{number}g"
            target.mkdir()
            for path in recorded:
                shutil.copy2(path, target)
            yield target, "real gloo", case, _truth(case, range(len(to)))


def _pickles(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("trace_rank_*")) if not path.suffix]


def _truth(case: Case, to: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(to[rank] for rank in case.culprits))


def _written(folder: Path, built: Job) -> Path:
    folder.mkdir()
    for rank in built.ranks:
        raw = pickle.dumps(document(built, rank), protocol=2)
        (folder / f"trace_rank_{rank}").write_bytes(raw)
    return folder


def _row(corpus: str, case: Case, truth: tuple[int, ...], folder: Path, their: Any) -> Row:
    ruling = of_dumps(_read(folder, case))
    return Row(
        corpus=corpus,
        case=case.name,
        truth=truth,
        ours=ruling.culprits,
        our_class=ruling.cause,
        theirs=None if their["crash"] else tuple(their["blamed"]),
        their_crash=their["crash"],
    )


def _read(folder: Path, case: Case) -> list[FlightDump]:
    """As taken `after_s` after the last entry: these files are written long after."""
    paths = sorted(folder.glob("trace_rank_*"))
    files = [FlightDump(f"file:{p}", int(p.name[11:]), data=p.read_bytes()) for p in paths]
    created = [e.created_ns or 0 for r in dumps.read(files).ranks for e in r.entries]
    at = max(created, default=0) + int(case.after_s * 1e9)
    return [FlightDump(d.source, d.rank, at_unix_ns=at, data=d.data) for d in files]


def _stock(folders: Sequence[Path]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.dumps.stock", *map(str, folders)],
        capture_output=True,
        text=True,
        timeout=AT_MOST_S,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {answer["folder"]: answer for answer in answers}


def table(rows: Sequence[Row]) -> str:
    """Markdown: a line per case, then how many each tool has right."""
    lines = ["| dumps | case | truth | ours | torchfrtrace |", "|---|---|---|---|---|"]
    for row in rows:
        theirs = f"crash: {row.their_crash}" if row.theirs is None else _ranks(row.theirs)
        ours = f"{_ranks(row.ours)}{'' if row.ours_right else ' ✗'}"
        theirs += "" if row.theirs_right else " ✗"
        lines.append(f"| {row.corpus} | {row.case} | {_ranks(row.truth)} | {ours} | {theirs} |")
    for corpus in dict.fromkeys(row.corpus for row in rows):
        of = [row for row in rows if row.corpus == corpus]
        crashed = sum(row.theirs is None for row in of)
        lines.append(
            f"| {corpus} | **right** | {len(of)} cases | {sum(r.ours_right for r in of)} | "
            f"{sum(r.theirs_right for r in of)} ({crashed} crashes) |"
        )
    return "\n".join(lines)


def _ranks(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks)) or "nobody"


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    print(table(rows(folder)))  # noqa: T201
