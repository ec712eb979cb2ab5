"""The clinic: forty sick runs, to be understood by commands alone; `make clinic` asks our agents.

examples:
  python -m tests.clinic list
  python -m tests.clinic open slow-03 /tmp/slow-03   # TASK.md says the question; Ctrl-C ends it
  python -m tests.clinic score answers.jsonl   # lines of {"run": ..., "cause": ..., "rank": N}
  python -m tests.clinic ask --agents commands --only stuck
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.clinic.agents import AGENTS, Answer
from tests.clinic.opened import Opened, opened
from tests.clinic.runs import sick_runs
from tests.clinic.score import Graded, right, table
from tests.faults.events import Silence
from tests.faults.host import Unavailable
from tests.pages import put_section


def main() -> int:
    """0; 1 where a run could not be opened or an answer is none."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no job is left behind
    parser = argparse.ArgumentParser(
        prog="python -m tests.clinic", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    actions = parser.add_subparsers(required=True)
    add = actions.add_parser("list", help="names of the runs").set_defaults
    add(do=lambda _: _say("\n".join(f"{run.name}\t{run.kind}" for run in sick_runs().values())))
    one = actions.add_parser("open", help="start one, until Ctrl-C")
    one.add_argument("run", choices=sick_runs(), metavar="RUN")
    one.add_argument("folder", type=Path, help="a new one")
    one.set_defaults(do=_open)
    score = actions.add_parser("score", help="hold answers to the truth")
    score.add_argument("answers", type=Path)
    score.set_defaults(do=_score)
    ask = actions.add_parser("ask", help="let the scripted agents answer")
    ask.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    ask.add_argument("--only", nargs="+", default=[""], metavar="PART", help="of the names")
    ask.add_argument("--json", type=Path, metavar="FILE", help="append every answer, a line each")
    ask.add_argument("--write", type=Path, metavar="PAGE", help="write the table there")
    ask.set_defaults(do=_ask)
    arguments = parser.parse_args()
    return int(arguments.do(arguments) or 0)


def _open(arguments: argparse.Namespace) -> int:
    try:
        with opened(arguments.run, arguments.folder) as run:
            _say((run.folder / "TASK.md").read_text())
            if run.pid or sick_runs()[run.name].case is not None:
                _say("Ctrl-C ends it.")
                signal.pause()
    except KeyboardInterrupt:
        return 0
    except (Silence, Unavailable, FileExistsError) as problem:
        _say(f"{arguments.run} could not be opened: {problem}")
        return 1
    return 0


def _score(arguments: argparse.Namespace) -> int:
    rows, bad = [], 0
    for number, line in enumerate(arguments.answers.read_text().splitlines(), 1):
        try:
            said = json.loads(line)
            ranks = (int(said["rank"]),) if said.get("rank") is not None else ()
            answer, name = Answer(str(said["cause"]), ranks), str(said["run"])
            rows.append(Graded(name, "answers", answer, right(name, answer), 0.0))
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            bad += 1
            _say(f"{arguments.answers}:{number}: no answer to a run of the list: {problem!r}")
    for row in rows:
        _say(f"{'right' if row.right else 'wrong'}  {row.run}: {row.answer.cause}")
    _say(table(rows))
    return int(bool(bad))


def _ask(arguments: argparse.Namespace) -> int:
    names = [name for name in sick_runs() if any(part in name for part in arguments.only)]
    rows = []
    with tempfile.TemporaryDirectory(prefix="clinic-") as temporary:
        for row in _answers(names, arguments.agents, Path(temporary)):
            rows.append(row)
            mark = "right" if row.right else "wrong"
            _say(f"{mark}  {row.run} {row.agent}: {row.answer.cause or 'nothing'} "
                 f"{list(row.answer.ranks)} ({row.seconds:.0f} s) {row.failed}")  # fmt: skip
            if arguments.json:
                with arguments.json.open("a") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
    command = f"python -m tests.clinic {' '.join(sys.argv[1:])}"
    page = f"## Scripted agents\n\n`{command}`, {os.cpu_count()} cores\n\n{table(rows)}"
    _say(page)
    if arguments.write:
        put_section(arguments.write, "clinic", page)
    return int(any(row.failed for row in rows))


def _answers(names: Sequence[str], agents: Sequence[str], folder: Path) -> Iterator[Graded]:
    """Every agent on every run; a stuck job that does not get stuck is started once more."""
    for name in names:
        for attempt in (1, 2):
            try:
                with opened(name, folder / f"{name}-{attempt}", folder / "model") as run:
                    yield from (_answered(run, agent) for agent in agents)
                break
            except Silence as problem:
                if attempt == 2:
                    yield from (_none(name, agent, str(problem)) for agent in agents)
            except Unavailable as problem:
                yield from (_none(name, agent, str(problem)) for agent in agents)
                break


def _none(name: str, agent: str, problem: str) -> Graded:
    return Graded(name, agent, Answer(), right=False, seconds=0.0, failed=problem)


def _answered(run: Opened, agent: str) -> Graded:
    began = time.monotonic()
    try:
        answer, failed = AGENTS[agent](run), ""
    except (ValueError, KeyError, OSError, ImportError, subprocess.SubprocessError) as problem:
        answer, failed = Answer(), repr(problem)
    seconds = time.monotonic() - began
    return Graded(run.name, agent, answer, right(run.name, answer), seconds, failed)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
