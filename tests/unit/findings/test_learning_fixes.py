"""What is advised where updates go too far, from the settings that a run has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from grpo_doctor.findings import RunView, learning
from grpo_doctor.findings.rule import Fix
from tests.build import TraceBuilder


def view(**knobs: Any) -> RunView:
    settings = {name.replace("__", "."): value for name, value in knobs.items()}
    build = TraceBuilder(framework="trl", framework_version="0.25.0", knobs=settings)
    return RunView.of(build.build())


@pytest.mark.parametrize(("fixes", "knobs", "after"), [
    (learning.slower, {"train__learning_rate": 1e-5}, 2e-6),
    (learning.slower, {"train__learning_rate": 0.0}, None),
    (learning.slower, {"train__learning_rate": "auto"}, None),
    (learning.clip_higher, {"train__epsilon_high": 0.27}, 0.28),
    (learning.clip_higher, {"train__epsilon": 0.2}, 0.28),
    (learning.stay_close, {"train__beta": 0.01}, 0.02),
    (learning.stay_close, {"train__beta": 0.0}, 0.04),
    (learning.clip_gradients, {"train__max_grad_norm": 1.5}, 1.0),
    (learning.clip_gradients, {"train__max_grad_norm": 0}, 1.0),
    (learning.fewer_iterations, {"train__num_iterations": 2}, 1),
])  # fmt: skip
def test_a_setting_moves_from_what_it_is(
    fixes: Callable[[RunView], tuple[Fix, ...]], knobs: dict[str, Any], after: object
) -> None:
    (fix,) = fixes(view(**knobs))
    assert fix.after == after
    assert fix.safety == "changes-algorithm"


@pytest.mark.parametrize(("fixes", "knobs"), [
    (learning.clip_higher, {"train__epsilon_high": 0.28}),
    (learning.clip_higher, {"train__epsilon_high": "auto"}),
    (learning.clip_higher, {"train__epsilon": 0.3}),
    (learning.stay_close, {"train__beta": "auto"}),
    (learning.clip_gradients, {"train__max_grad_norm": 1.0}),
    (learning.clip_gradients, {"train__max_grad_norm": 0.5}),
    (learning.fewer_iterations, {"train__num_iterations": 1}),
    (learning.fewer_iterations, {"train__num_iterations": "auto"}),
])  # fmt: skip
def test_what_is_so_already_or_unknown_is_left_alone(
    fixes: Callable[[RunView], tuple[Fix, ...]], knobs: dict[str, Any]
) -> None:
    assert fixes(view(**knobs)) == ()


def test_an_unknown_rate_is_advised_in_words() -> None:
    (fix,) = learning.slower(view(train__learning_rate="auto"))
    assert fix.spelling == "a learning rate of a fifth"


def test_the_first_term_costs_a_pass_and_a_heavier_one_does_not() -> None:
    assert "forward pass" in learning.stay_close(view(train__beta=0.0))[0].risk
    assert "forward pass" not in learning.stay_close(view(train__beta=0.01))[0].risk
