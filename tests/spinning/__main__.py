"""`python -m tests.spinning`: every way in which a spinning job is stuck, slow or healthy."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from tests.faults.jobs import ROOT
from tests.spinning.cases import CASES
from tests.spinning.run import Result, line, run, totals
from tests.spinning.stand_ins import COMPILER

FIRST_PASS = Path(__file__).with_name("first_pass.json")  # of cc6fd98


def main() -> int:
    """Runs what is asked for; the exit code tells whether all was right."""
    parser = argparse.ArgumentParser(prog="python -m tests.spinning", description=__doc__)
    parser.add_argument("only", nargs="*", help="words of the names of the cases to run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--keep", type=Path, help="a folder for the evidence of each case")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--tree", type=Path, default=ROOT, help="ask the attach of this checkout")
    parser.add_argument("--wrong", action="store_true", help="say only what was not right, again")
    options = parser.parse_args()
    if COMPILER is None:
        sys.stdout.write(
            "needs a C compiler (cc or gcc) for the stand-ins of libcuda and libnccl\n"
        )
        return 2
    cases = [case for name, case in CASES.items() if not options.only or _meant(name, options.only)]
    results = run(cases, options.seeds, _say, options.keep, options.tree)
    if options.wrong:
        for result in results:
            if not result.right:
                _say(line(result))
    _beside(results)
    for name, share in totals(results).items():
        _say(f"{name}: {share}")
    if options.json is not None:
        document = {"totals": totals(results), "results": [asdict(result) for result in results]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(result.right for result in results) else 1


def _beside(results: list[Result]) -> None:
    """What was said of the same cases before anything was fixed for them, where it was wrong."""
    rows = {row["name"]: row for row in json.loads(FIRST_PASS.read_text())["results"]}
    now = {result.name: result for result in results if not result.skipped and result.name in rows}
    for name, result in now.items():
        before = rows[name]
        earlier = f"{before['state']} {before['cause']} {before['culprits']}"
        if not (before["state_right"] and before["ranks_right"] and before["class_right"]):
            _say(f"{name}: {earlier}, now {result.state} {result.cause} {list(result.culprits)}")


def _meant(name: str, words: list[str]) -> bool:
    return any(word in name for word in words)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
