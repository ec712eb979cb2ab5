"""The table of what was wrong under NCCL and in real frameworks: first answer beside today's.

python -m tests.nccl_rules.page [--seeds FIRST:LAST] [--write benchmarks/results/accuracy.md]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.corpus.replay import replay_stored
from tests.corpus.score import Answer as Replayed
from tests.dumps.real_nccl import recordings
from tests.nccl_rules.cases import HELD_OUT, cases
from tests.nccl_rules.faults import KINDS
from tests.nccl_rules.score import BLAMELESS, Answer, answers
from tests.pages import put_section
from tests.verdicts import of_dumps

# Said by commit cc6fd98, before anything was changed: first_pass.md, the first_pass.json of
# tests/spinning, first answers of tests/frameworks. The jobs of a row are not always those of now.
FIRST = {
    "h100": "6 of 6",
    "real": "0 of 4; 8 to 12 healthy ranks blamed for a ring of groups",
    "simulated": "86 of 132",
    "blameless": "8 of 24",
    "rings": "16 of 132",
    "healthy": "10 of 35",
    "spinning": "23 of 35",
    "alive": "0 of 13",
    "hanging": "0 of 15",
    "judges": "0 of 20",
}
_RAY = ("verl", "OpenRLHF")


def main() -> int:
    """Prints the table, and writes it into a page where one is named."""
    parser = argparse.ArgumentParser(prog="python -m tests.nccl_rules.page", description=__doc__)
    parser.add_argument("--seeds", default="9000:9006", help="of simulated jobs, FIRST:LAST")
    parser.add_argument("--write", type=Path, metavar="PAGE")
    options = parser.parse_args()
    text = page(options.seeds, " ".join(sys.argv[1:]))
    sys.stdout.write(text)
    if options.write:
        put_section(options.write, "nccl", text)
    return 0


def page(seeds: str, arguments: str) -> str:
    """All rows, as Markdown."""
    first, _, last = seeds.partition(":")
    seed_range = range(int(first), int(last))
    simulated = answers(cases(HELD_OUT, seed_range, list(KINDS), counters=False))
    recorded = replay_stored()
    rows = [
        *_real(), *_on_gpu(recorded), *_simulated(simulated), *_spinning(recorded),
        *_frameworks(recorded),
    ]  # fmt: skip
    lines = [f"| {title} | {FIRST[key]} | {now} |" for key, title, now in rows]
    return "\n".join(
        [
            "# Real NCCL, NCCL's rules, and real frameworks",
            "",
            f"Written by `python -m tests.nccl_rules.page {arguments}`. *First* is what commit",
            "cc6fd98 said before anything was changed, and of the H100's jobs what was said on the",
            "H100. The four recordings and the other recorded jobs were developed on since; the",
            "simulated jobs are drawn by seeds that were not.",
            "",
            "| tried | first | now |",
            "|---|---|---|",
            *lines,
            "",
            _by_kind(simulated),
        ]
    )


Row = tuple[str, str, str]


def _real() -> Iterable[Row]:
    right = sum(
        frozenset(of_dumps(recording.files, 16).culprits) == recording.culprits
        for recording in recordings()
    )
    text = (
        "real NCCL: recordings with injected faults in which exactly the injected ranks are named"
    )
    yield "real", text, f"{right} of {len(recordings())}"


def _on_gpu(recorded: Sequence[Replayed]) -> Iterable[Row]:
    jobs = [job for job in recorded if job.source == "NCCL-H100"]
    text = "NCCL jobs of four ranks that share an H100: state, rank and class"
    yield "h100", text, _share(jobs, lambda answer: answer.right)


def _simulated(simulated: Sequence[Answer]) -> Iterable[Row]:
    text = "NCCL's rules: simulated hangs, dumps alone: all culprits and nobody else"
    yield "simulated", text, _share(simulated, lambda answer: answer.right)
    blameless = [answer for answer in simulated if answer.case.kind in BLAMELESS]
    yield (
        "blameless",
        "of these, broken links and healthy moments for which no rank is blamed",
        _share(blameless, lambda answer: answer.right),
    )
    text = "of these, a ring of groups where none was made"
    yield "rings", text, _share(simulated, lambda answer: answer.wrong_ring)


def _spinning(recorded: Sequence[Replayed]) -> Iterable[Row]:
    spinning = [answer for answer in recorded if answer.family == "spinning"]
    dead = [answer for answer in spinning if "healthy" not in answer.wanted.states]
    alive = [answer for answer in spinning if "healthy" in answer.wanted.states]
    text = "hosts that spin as under NCCL: dead jobs called healthy"
    yield "healthy", text, _share(dead, lambda answer: answer.state == "healthy")
    text = "of these dead jobs, the guilty rank, or nobody where none is"
    yield "spinning", text, _share(dead, lambda answer: answer.culprit_right)
    text = "hosts that spin: living jobs called stuck or dead"
    yield "alive", text, _share(alive, lambda answer: answer.state in ("stuck", "dead"))


def _frameworks(recorded: Sequence[Replayed]) -> Iterable[Row]:
    of_ray = [answer for answer in recorded if answer.source.startswith(_RAY)]
    hanging = [answer for answer in of_ray if "-reward-" in answer.name]
    text = "verl and OpenRLHF: a reward that hangs, state, actor or rank, and class"
    yield "hanging", text, _share(hanging, lambda answer: answer.right)
    frameworks = [answer for answer in recorded if answer.source.startswith((*_RAY, "TRL"))]
    judges = [
        answer
        for answer in frameworks
        if "-judge-" in answer.name and "stuck" not in answer.wanted.states
    ]
    text = "TRL, verl, OpenRLHF: attaches during a living judge of 12 to 40 s that say stuck"
    yield "judges", text, _share(judges, lambda answer: answer.state in ("stuck", "dead"))


def _share(answers: Sequence[object], is_so: Callable[..., bool]) -> str:
    return f"{sum(map(is_so, answers))} of {len(answers)}"


def _by_kind(simulated: Sequence[Answer]) -> str:
    lines = ["| simulated fault | right |", "|---|---|"]
    for kind in dict.fromkeys(answer.case.kind for answer in simulated):
        own = [answer for answer in simulated if answer.case.kind == kind]
        lines.append(f"| {kind} | {_share(own, lambda answer: answer.right)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
