"""`python -m tests.treat`: treats jobs with a known handicap, and healthy ones."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.pages import put_section
from tests.treat.again import T, confirmed
from tests.treat.jobs import Job, jobs

SECTION = "treat"


@dataclass(frozen=True)
class Row:
    """What came of one treatment."""

    job: str
    right: bool
    kept: str
    measured: str
    within: str
    trials: int
    minutes: float
    said: str
    again: str = ""


def main() -> int:
    """0 if each handicap was found and nothing was kept of healthy jobs, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.treat", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="of the jobs' names")
    parser.add_argument("--budget", default="15m")
    parser.add_argument(
        "--confirm", type=int, default=0, metavar="SEED",
        help="run the rows of --json that kept something again: --pairs of them with this seed",
    )  # fmt: skip
    parser.add_argument("--pairs", type=int, choices=T, default=5)
    parser.add_argument("--folder", type=Path, help="keep the treatments there")
    parser.add_argument("--json", type=Path, help="keep each row there; rows that it has stay")
    parser.add_argument("--beside", default="", metavar="WORDS", help="what else the host did")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the table into a page")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="treat-"))
    folder.mkdir(parents=True, exist_ok=True)
    rows = _kept(arguments.json)
    for job in jobs(folder):
        wanted = not arguments.only or any(part in job.name for part in arguments.only)
        for turn in range(job.again if wanted else 0):
            name = job.name if job.again == 1 else f"{job.name}, run {turn + 1}"
            place = folder / name.replace(" ", "-").replace(":", "").replace(",", "")
            known = next((n for n, row in enumerate(rows) if row.job == name), None)
            if known is None and not arguments.confirm:
                rows.append(row_of(name, job, treated(job, place, arguments.budget)))
            elif known is not None and _is_unconfirmed(rows[known]) and arguments.confirm:
                text = confirmed(job, place, arguments.confirm, arguments.pairs)
                rows[known] = replace(rows[known], again=text)
            else:
                continue
            sys.stdout.write(f"{rows[-1 if known is None else known]}\n")
            sys.stdout.flush()
            if arguments.json:
                arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    section = table(rows, arguments.beside)
    sys.stdout.write(section)
    if arguments.write:
        put_section(arguments.write, SECTION, section)
    return 0 if all(row.right for row in rows) else 1


def _kept(file: Path | None) -> list[Row]:
    if file is None or not file.exists():
        return []
    return [Row(**row) for row in json.loads(file.read_text())]


def _is_unconfirmed(row: Row) -> bool:
    return bool(row.measured) and not row.again


def treated(job: Job, folder: Path, budget: str) -> dict[str, Any]:
    """Return the card of one treatment of a job.

    Raises:
        RuntimeError: it has none; with what was said.
    """
    command = [
        sys.executable, "-m", "grpo_doctor", "treat", "--json", "--budget", budget,
        "-o", str(folder / "treated"), "--", *job.words,
    ]  # fmt: skip
    folder.mkdir(parents=True)
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **job.environment}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    (folder / "said.txt").write_text(done.stderr)
    if not done.stdout:
        raise RuntimeError(f"{job.name}: {done.stderr[-2000:]}")
    card: dict[str, Any] = json.loads(done.stdout)
    return card


def row_of(name: str, job: Job, card: dict[str, Any]) -> Row:
    """Return whether a treatment found what it should, and no more than that."""
    kept = [change for change in card["changes"] if change["state"] == "kept"]
    names = {word for change in kept for word in change["text"].split() if word.startswith("--")}
    return Row(
        job=name,
        right=bool(names & set(job.removes)) if job.removes else not kept,
        kept=", ".join(change["text"] for change in kept) or "nothing",
        measured=", ".join(f"{change['measured']['mid']:+.0f}%" for change in kept),
        within=", ".join(
            {True: "yes", False: "no", None: "unclear"}[change["as_predicted"]] for change in kept
        ),
        trials=len(card["trials"]),
        minutes=round(card["spent_s"] / 60, 1),
        said=card["verdict"],
    )


def table(rows: Sequence[Row], beside: str = "") -> str:
    """Return the rows as Markdown."""
    found = sum(row.right for row in rows if not row.job.startswith("healthy"))
    healthy = [row for row in rows if row.job.startswith("healthy")]
    head = (
        f"`python -m tests.treat`: the handicap was found in {found} of "
        f"{len(rows) - len(healthy)} jobs; nothing was kept in {sum(r.right for r in healthy)} "
        f"of {len(healthy)} runs of healthy jobs. {beside}"
    )
    lines = [
        head,
        "",
        "| job | kept | measured | within the prediction | in new pairs | trials | minutes |",
        "|---|---|---|---|---|---:|---:|",
    ]
    lines += [
        f"| {r.job} | {f'`{r.kept}`' if r.measured else r.kept} | {r.measured} | {r.within} "
        f"| {r.again} | {r.trials} | {r.minutes} |"
        for r in rows
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
