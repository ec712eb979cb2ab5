"""`python -m tests.corpus`: packs recorded jobs into the repository and replays them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.corpus import known, replay, said, verdicts
from tests.corpus import table as tables
from tests.corpus.packing import pack
from tests.corpus.score import Answer


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    keep = commands.add_parser("pack", help="store the bundles in these folders")
    keep.add_argument("folders", nargs="+", type=Path)
    keep.add_argument("--seed", type=int, default=0, help="of the bench, for bundles without truth")
    commands.add_parser("accept", help="keep what is said now, and what of it is wrong, for tests")
    show = commands.add_parser("show", help="print the whole document on each job, to compare")
    show.add_argument("only", nargs="*", metavar="PART", help="of names; or family, source, class")
    commands.add_parser("worth", help="count how often each word of certainty is right")
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
        parts = replay.over_stored(said.lines)
        said.accept({name: line for part in parts for name, line in part.items()})
        return 0
    if arguments.command == "show":
        _say("".join(replay.over_stored(said.document, arguments.only, jobs=1)))
        return 0
    if arguments.command == "worth":
        for word, worth in verdicts.counted().items():
            _say(f"{word:<10} {worth.right} of {worth.verdicts}: {worth.share:.1%}\n")
        return 0
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


def _say(text: str) -> None:
    sys.stdout.write(text)


if __name__ == "__main__":
    sys.exit(main())
