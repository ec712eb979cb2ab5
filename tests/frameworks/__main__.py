"""`python -m tests.frameworks`: real jobs, real faults, and what `attach` says of them."""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path

from tests.frameworks import environments, inputs, score
from tests.frameworks.cases import ROUNDS, Case, Round
from tests.frameworks.jobs import Setting
from tests.frameworks.play import ROOT, Player


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.frameworks",
        description="Injects faults into real jobs of TRL, ms-swift, verl and OpenRLHF.",
    )
    add = parser.add_argument
    add("frameworks", nargs="*", help="verl, openrlhf, swift, trl; all without one")
    add("--only", nargs="+", default=[], metavar="PART", help="of the cases' names")
    add("--rounds", nargs="+", type=int, default=[], metavar="N", help="of a framework, from 0")
    add("--environments", type=Path, default=Path("/tmp/framework-environments"))
    add("--folder", type=Path, default=Path("/tmp/framework-jobs"), help="for jobs and their logs")
    add("--bundles", type=Path, default=Path("/tmp/framework-bundles"), help="for evidence")
    add("--tool", type=Path, default=ROOT, help="a checkout of grpo-doctor to be asked")
    add("--seed", type=int, default=0, help="tells repetitions apart")
    add("--replay", type=Path, metavar="DIR", help="judge kept evidence again, and start nothing")
    add("--build", action="store_true", help="make the environments first")
    add("--ages", nargs="+", type=float, help="seconds after a fault began when to attach")
    add("--healthy", type=int, help="healthy moments of a round that has some")
    return parser.parse_args()


def _chosen(arguments: argparse.Namespace) -> list[tuple[int, Round]]:
    plans = []
    for framework in arguments.frameworks or environments.ENVIRONMENTS:
        own = [plan for plan in ROUNDS if plan.framework == framework]
        for number, plan in enumerate(own):
            cases = tuple(case for case in plan.cases if _is_wanted(case, arguments.only))
            if cases and (not arguments.rounds or number in arguments.rounds):
                plans.append((number, replace(plan, cases=cases)))
    return plans


def _is_wanted(case: Case, parts: list[str]) -> bool:
    return not parts or any(part in case.name for part in parts)


def main() -> int:
    """0; with --replay 1 where a verdict does not fit its truth."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no job is left behind
    arguments = _arguments()
    if arguments.replay is not None:
        return _replay(arguments.replay)
    folder: Path = arguments.folder
    arguments.bundles.mkdir(parents=True, exist_ok=True)
    model, data = inputs.write_model(folder / "model"), inputs.write_prompts(folder / "data")
    player = Player(arguments.bundles, arguments.tool, _say, arguments.seed)
    for number, plan in _chosen(arguments):
        environment = arguments.environments / f"env-{plan.framework}"
        python = environments.python_of(environment)
        if arguments.build:
            python = environments.build(plan.framework, environment)
        if plan.framework == "trl" and not python.exists():
            python = Path(sys.executable)
        own = folder / f"{plan.framework}-{number}-{arguments.seed}"
        setting = Setting(plan.framework, python, model, data, own, plan.options, plan.environment,
                          plan.piped)  # fmt: skip
        if plan.healthy and arguments.healthy is not None:
            plan = replace(plan, healthy=arguments.healthy)  # noqa: PLW2901
        if arguments.ages:
            cases = tuple(replace(case, ages_s=tuple(arguments.ages)) for case in plan.cases)
            plan = replace(plan, cases=cases)  # noqa: PLW2901
        for _ in player.play(setting, plan):
            pass
    return 0


def _replay(folder: Path) -> int:
    rows = list(score.judged(folder))
    for row in rows:
        _say(row.text())
    right = sum(not row.wrong for row in rows)
    _say(f"{right} of {len(rows)} wholly right")
    return int(right < len(rows))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
