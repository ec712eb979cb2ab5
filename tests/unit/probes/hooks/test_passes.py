"""The size of each pass of a GRPO trainer, and completions that it writes beside its metrics."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.hooks.grpo_trainers import COMPLETIONS, PLACES, metrics_logged, of_trainer
from grpo_doctor_probes.hooks.spans import HookedSpan, open_spans
from grpo_doctor_probes.hooks.wrapping import replace
from tests.unit.probes.conftest import Recorded


class Tensor:
    def __init__(self, places: int) -> None:
        self.places = places

    def numel(self) -> int:
        return self.places


def trainer(**facts: Any) -> Any:
    """A trainer in TRL's shape, whose `log` says what is open before and after the metrics."""

    class GRPOTrainer:
        def compute_loss(self, model: Any, inputs: Any) -> Any:
            return inputs

        def log(self, logs: dict[str, float]) -> list[list[str]]:
            before = list(open_spans())
            metrics_logged()
            if "broken" in logs:
                raise OSError("the disk is full")
            return [before, list(open_spans())]

        def is_world_process_zero(self) -> bool:
            return bool(facts.get("zero", True))

    module = ModuleType("trl.trainer.grpo_trainer")
    vars(module)["GRPOTrainer"] = GRPOTrainer
    for qualname, around in of_trainer().items():
        assert replace(module, qualname, around)
    made = GRPOTrainer()
    vars(made).update(facts)
    return made


SPLIT = {"prompt_ids": Tensor(12), "completion_ids": Tensor(30)}
WHOLE = {"input_ids": Tensor(50)}


@pytest.mark.parametrize(
    ("inputs", "places"),
    [
        (SPLIT, 42.0),
        (WHOLE, 50.0),
        ({**SPLIT, **WHOLE}, 50.0),
        ({"prompt_ids": Tensor(12)}, 12.0),
        ({"model_inputs": WHOLE, **SPLIT}, 50.0),
        ([WHOLE, SPLIT], 50.0),
        ([(SPLIT,)], 42.0),
        ([], None),
        ({}, None),
        ({"input_ids": Tensor(0)}, None),
    ],
)
@pytest.mark.parametrize("by_name", [True, False])
def test_a_pass_has_the_places_of_its_tensors(
    recording: Recorded, inputs: Any, places: float | None, by_name: bool
) -> None:
    made = trainer()
    returned = (
        made.compute_loss(None, inputs=inputs) if by_name else made.compute_loss(None, inputs)
    )
    assert returned is inputs
    counted = [(row.name, row.value) for row in recording.rows]
    assert counted == ([] if places is None else [(PLACES, places)])
    assert recording.header.errors == 0


def test_passes_of_an_evaluation_are_not_counted(recording: Recorded) -> None:
    made = trainer()
    with HookedSpan("eval"):
        made.compute_loss(None, WHOLE)
    assert [row.name for row in recording.rows] == ["eval"]


def test_inputs_of_a_shape_from_tomorrow_are_passed_on(recording: Recorded) -> None:
    inputs = SimpleNamespace()
    assert trainer().compute_loss(None, inputs) is inputs
    assert recording.header.errors == 1


@pytest.mark.parametrize(
    ("log_completions", "zero", "timed"),
    [(True, True, True), (True, False, False), (False, True, False), (None, True, False)],
)
def test_what_a_trainer_does_after_its_metrics_is_to_log_completions(
    recording: Recorded, log_completions: bool | None, zero: bool, timed: bool
) -> None:
    facts = {} if log_completions is None else {"log_completions": log_completions}
    before, after = trainer(zero=zero, **facts).log({"loss": 0.5})
    assert (before, after) == ([], [COMPLETIONS] if timed else [])
    assert open_spans() == []
    assert [row.name for row in recording.rows] == ([COMPLETIONS] if timed else [])


def test_a_log_that_fails_ends_what_it_began(recording: Recorded) -> None:
    with pytest.raises(OSError, match="the disk is full"):
        trainer(log_completions=True).log({"broken": 1.0})
    assert open_spans() == []
    metrics_logged()  # of another trainer
    assert open_spans() == []
