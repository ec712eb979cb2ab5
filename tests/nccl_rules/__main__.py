"""The score of the matcher on jobs under NCCL's rules.

python -m tests.nccl_rules [--held-out] [--seeds FIRST:LAST] [--only KIND] [--counters] [--wrong]
"""

from __future__ import annotations

import argparse

from tests.nccl_rules.cases import DEVELOPMENT, HELD_OUT, cases
from tests.nccl_rules.faults import KINDS
from tests.nccl_rules.score import Answer, answers, table


def main() -> None:
    """Prints the table, and what was wrong where it is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.nccl_rules")
    parser.add_argument("--held-out", action="store_true", help="shapes that were not developed on")
    parser.add_argument("--seeds", default="0:20", help="FIRST:LAST, the last not included")
    parser.add_argument("--only", default="", help="kinds of faults that contain this")
    parser.add_argument("--wrong", action="store_true", help="prints each wrong answer")
    parser.add_argument("--counters", action="store_true", help="dumps without entries")
    options = parser.parse_args()
    first, _, last = options.seeds.partition(":")
    kinds = [kind for kind in KINDS if options.only in kind]
    shapes = HELD_OUT if options.held_out else DEVELOPMENT

    def tell(answer: Answer) -> None:
        if options.wrong and not answer.right:
            ranks, reasons = list(answer.culprits), sorted(answer.reasons)
            verdict = f"{answer.case.name}: {ranks} {answer.cause} {reasons}"
            truth = f"must {sorted(answer.case.needed)}, may {sorted(answer.case.culprits)}"
            print(f"{verdict}; {truth}; {answer.case.recorder}")  # noqa: T201

    seeds = range(int(first), int(last))
    simulated = cases(shapes, seeds, kinds, counters=options.counters)
    print(table(answers(simulated, tell)))  # noqa: T201


if __name__ == "__main__":
    main()
