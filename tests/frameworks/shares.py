"""`python -m tests.frameworks.shares DIR`: which phases were seen in recorded jobs, as a table.

DIR is what pytest was given as --basetemp; every run directory below it is a row. The last column
is how far the seconds of phases are from the job's own stopwatch, where it had one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.phases import PHASES, UNATTRIBUTED
from grpo_doctor.trace.read import load
from tests.frameworks.recorded_jobs import stopwatch

_COLUMNS = (*PHASES[1:], UNATTRIBUTED)  # `init` lies before the steps


def rows(folder: Path) -> Iterator[list[str]]:
    """A row per run with steps: framework, version, steps, each phase's share, the error."""
    for ranks in sorted(folder.rglob("ranks")):
        try:
            trace = load(ranks.parent)
        except GrpoDoctorError:
            continue
        analysis = analyse(trace)
        if not len(analysis.steps.used):
            continue
        shares = [analysis.share(name) for name in _COLUMNS]
        yield [
            trace.run.framework,
            trace.run.framework_version or "",
            str(len(analysis.steps.numbers)),
            *(f"{100 * share:.0f}%" if share >= 0.005 else "" for share in shares),
            _error(analysis, ranks.parent),
        ]


def _error(analysis: Analysis, run: Path) -> str:
    """The largest difference from the job's stopwatch, rank 0 over all steps."""
    truth = _stopwatch(run)
    measured = {name: float(analysis.seconds[:, 0, code].sum()) for code, name in enumerate(PHASES)}
    errors = {n: measured[n] / s - 1 for n, s in truth.items() if s and measured.get(n)}
    if not errors:
        return ""
    name = max(errors, key=lambda key: abs(errors[key]))
    return f"{name} {100 * errors[name]:+.1f}%"


def _stopwatch(run: Path) -> Mapping[str, float]:
    folder = run.with_suffix("")
    if not (folder / "stopwatch.json").exists():
        return {}
    measured = stopwatch(folder)
    # Fetching has work of its own beside the sleep: only what a sleep is all of is compared.
    judged = measured.pop("judge", 0.0)
    return {"reward": measured.get("reward", 0.0) + judged}


def main() -> int:
    """Prints the table; 1 without any run."""
    table = list(rows(Path(sys.argv[1])))
    head = ["framework", "version", "steps", *_COLUMNS, "from its stopwatch"]
    for row in [head, ["---"] * len(head), *table]:
        sys.stdout.write(f"| {' | '.join(row)} |\n")
    return 0 if table else 1


if __name__ == "__main__":
    sys.exit(main())
