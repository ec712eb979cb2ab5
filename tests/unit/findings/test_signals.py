"""What a recording must hold: the fewest that is enough."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import grpo_doctor_probes
from grpo_doctor.analysis import analyse
from grpo_doctor.findings.rules import ALL
from grpo_doctor.findings.shared import BUNDLED_ONLY
from grpo_doctor.findings.signals import COLLECTIVES, PHASES, STEPS, any_of, sampled
from tests.build import TraceBuilder


def steps(count: int, seconds: float = 1.0) -> TraceBuilder:
    build = TraceBuilder()
    for number in range(count):
        build.step(0, number, 10.0 * number, {"train": seconds}, end_s=10.0 * number + 9)
    return build


@pytest.mark.parametrize(("count", "enough"), [(2, False), (3, True), (4, True)])
def test_three_steps_are_enough(count: int, enough: bool) -> None:
    assert STEPS.present(analyse(steps(count).build())) is enough


def test_any_time_in_any_phase_is_a_recording_of_phases() -> None:
    assert PHASES.present(analyse(steps(3, 0.001).build()))
    assert not PHASES.present(analyse(steps(3, 0.0).build()))


def test_one_collective_of_two_ranks_is_enough() -> None:
    build = TraceBuilder(ranks=2)
    for rank in (0, 1):
        build.step(rank, 0, 0.0, {"train": 5.0})
    assert not COLLECTIVES.present(analyse(build.build()))
    for rank in (0, 1):
        build.collective(rank, 0, 1.0, 2.0)
    assert COLLECTIVES.present(analyse(build.build()))


def test_one_of_several_signals_is_enough() -> None:
    either = any_of("either", sampled("a", "ask for it"), sampled("b", "ask for it"))
    texts = [
        either.present(analyse(steps(3).series(name, "", [0.0], [value]).build()))
        for name, value in (("a", 1.0), ("b", 1.0), ("c", 1.0), ("a", float("nan")))
    ]
    assert texts == [True, True, False, False]
    assert either.reads == ("a", "b")


# What trainers log by themselves, by their own names.
LOGGED = re.compile(r"(completions|rewards|prompt_length|response_length)/.*")


def test_what_a_rule_needs_is_written_for_other_trainers_too_or_it_is_declared() -> None:
    probes = Path(grpo_doctor_probes.__file__).parent
    written = "\n".join(path.read_text(encoding="utf-8") for path in probes.rglob("*.py"))

    def has_writer(name: str) -> bool:
        canonical = not {"/", "."} & set(name)  # of a metric, or of a part of a recording
        short = name.partition(".")[2]
        spelled = (f'"{name}"', f'Field("{short}"', f'track("{short}"')
        return canonical or bool(LOGGED.fullmatch(name)) or any(s in written for s in spelled)

    alone = {
        rule.RULE.id
        for rule in ALL
        for signal in rule.RULE.needs
        if signal.reads and not any(map(has_writer, signal.reads))
    }
    assert alone == set(BUNDLED_ONLY)
