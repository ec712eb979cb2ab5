"""`python -m tests.corpus`: packs recorded jobs into the repository and replays them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from grpo_doctor.hang.decision.confidence import FILE
from tests.corpus import fit, known, page, replay, verdicts
from tests.corpus import table as tables
from tests.corpus.packing import pack
from tests.corpus.score import Answer
from tests.nccl_rules.cases import DEVELOPMENT
from tests.nccl_rules.cases import cases as nccl_cases
from tests.nccl_rules.faults import KINDS
from tests.nccl_rules.score import answers
from tests.pages import put_section

SIMULATED = 8  # seeds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    keep = commands.add_parser("pack", help="store the bundles in these folders")
    keep.add_argument("folders", nargs="+", type=Path)
    keep.add_argument("--seed", type=int, default=0, help="of the bench, for bundles without truth")
    commands.add_parser("accept", help="make what is answered wrongly now the known (for the test)")
    calibrate = commands.add_parser("fit", help="make the table of confidence from all jobs")
    calibrate.add_argument(
        "--write", type=Path, metavar="PAGE", help="and say there what it is worth"
    )
    again = commands.add_parser(
        "replay", help="diagnose every job again and compare with the truth"
    )
    add = again.add_argument
    add("--from", nargs="+", type=Path, default=[], dest="folders", metavar="DIR")
    add("--seed", type=int, default=0, help="of the bench, for bundles without truth")
    add("--only", nargs="+", default=[], metavar="PART", help="of names; or family, source, class")
    add("--json", type=Path, metavar="FILE", help="write every answer there")
    add("--compare", type=Path, metavar="OLD", help="what changed since this --json")
    add("--jobs", type=int, default=replay.JOBS, metavar="N", help="processes")
    return parser.parse_args()


def main() -> int:
    """0, or 1 where a replay has a wrong answer."""
    arguments = _arguments()
    if arguments.command == "pack":
        for name, size in pack(arguments.folders, arguments.seed).items():
            _say(f"{size:>9}  {name}\n")
        return 0
    if arguments.command == "accept":
        known.accept(replay.replay_stored())
        return 0
    if arguments.command == "fit":
        return _fit(arguments.write)
    answers = _replayed(arguments)
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(answers), indent=1))
    _say(tables.wrong(answers))
    _say(tables.by_family(answers))
    _say(tables.slowest(answers))
    if arguments.compare:
        old = msgspec.json.decode(arguments.compare.read_bytes(), type=list[Answer])
        answered = {(answer.source, answer.name) for answer in answers}
        previous = [
            answer
            for answer in old
            if not arguments.only or (answer.source, answer.name) in answered
        ]
        _say(tables.changes(previous, answers))
    return int(not all(answer.right for answer in answers))


def _replayed(arguments: argparse.Namespace) -> Sequence[Answer]:
    if arguments.folders:
        return replay.replay_folders(
            arguments.folders, arguments.only, arguments.seed, arguments.jobs
        )
    return replay.replay_stored(arguments.only, arguments.jobs)


def _fit(destination: Path | None) -> int:
    cases = [case for item_cases in replay.over_stored(verdicts.cases) for case in item_cases]
    settings = fit.chosen(cases)
    simulated = answers(nccl_cases(DEVELOPMENT, range(SIMULATED), list(KINDS), counters=False))
    table = msgspec.structs.replace(
        fit.fit(cases, settings), recordings=fit.recordings(simulated, settings.lean)
    )
    text = page.page(fit.predicted(cases, settings), table, settings)
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(table), indent=1))
    _say(text)
    if destination is not None:
        put_section(destination, "confidence", text)
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text)


if __name__ == "__main__":
    sys.exit(main())
