"""Rewards and callbacks under the names that their users gave them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor_probes.hooks.users_code import name_callbacks, name_of, name_rewards, time_method
from tests.unit.probes.conftest import Recorded


def accuracy(text: str) -> float:
    return float(len(text))


class Judge:
    def __call__(self, text: str) -> float:
        return 1.0


class RewardModel:
    def parameters(self) -> list[object]:
        return []

    def __call__(self, text: str) -> float:
        return self.forward(text)

    def forward(self, text: str) -> float:
        return 2.0


def fresh(kind: type) -> Any:
    """An object of a class of its own, of the same name: what is hooked is the class."""
    return type(kind.__name__, (kind,), {})()


@pytest.mark.parametrize(
    ("reward_names", "expected"),
    [
        (None, ["accuracy", "Judge", "RewardModel"]),
        ([], ["accuracy", "Judge", "RewardModel"]),
        (["Exact", "", "Judged"], ["Exact", "Judge", "Judged"]),
        (["Exact"], ["Exact", "Judge", "RewardModel"]),  # fewer names than functions
    ],
)
def test_each_reward_of_a_trainer_has_a_span_of_its_name(
    recording: Recorded, reward_names: list[str] | None, expected: list[str]
) -> None:
    trainer = SimpleNamespace(reward_funcs=[accuracy, fresh(Judge), fresh(RewardModel)])
    if reward_names is not None:
        trainer.reward_func_names = reward_names
    kinds = [type(function) for function in trainer.reward_funcs]
    for _ in range(2):  # as when a trainer trains twice
        name_rewards(trainer)
    assert [function("abc") for function in trainer.reward_funcs] == [3.0, 1.0, 2.0]
    assert recording.names == [f"reward/{name}" for name in expected]
    assert [type(function) for function in trainer.reward_funcs] == kinds


def test_a_reward_model_with_a_plugin_is_timed_by_that(recording: Recorded) -> None:
    plugin, judge = fresh(Judge), fresh(Judge)
    model, second = fresh(RewardModel), fresh(RewardModel)
    trainer = SimpleNamespace(
        reward_funcs=[model, judge, second], reward_func_names=["RM", "Judge", "Other"],
        reward_model_plugins=[plugin, None],
    )  # fmt: skip
    name_rewards(trainer)
    assert [score("a") for score in (model, plugin, judge, second)] == [2.0, 1.0, 1.0, 2.0]
    assert recording.names == ["reward/RM", "reward/Judge", "reward/Other"]


@pytest.mark.parametrize("functions", [None, accuracy, (accuracy,)], ids=["none", "one", "a tuple"])
def test_what_is_no_list_of_rewards_is_left_as_it_is(recording: Recorded, functions: Any) -> None:
    trainer = SimpleNamespace() if functions is None else SimpleNamespace(reward_funcs=functions)
    name_rewards(trainer)
    accuracy("a")
    assert name_of(SimpleNamespace(__name__="")) == "SimpleNamespace"
    assert getattr(trainer, "reward_funcs", None) is functions
    assert recording.names == []


def test_a_method_of_a_base_is_timed_once_and_under_the_name_of_each_class(
    recording: Recorded,
) -> None:
    class Base(Judge):
        pass

    class Inherits(Base):
        pass

    class Overrides(Base):
        def __call__(self, text: str) -> float:
            return 0.5

    made = [Base(), Inherits(), Overrides()]
    for reward in made:
        time_method(reward, "__call__", f"reward/{type(reward).__name__}")
    assert [reward("a") for reward in made] == [1.0, 1.0, 0.5]
    assert recording.names == ["reward/Base", "reward/Inherits", "reward/Overrides"]


@pytest.mark.parametrize("method", ["gone", "number", "upper"])
def test_what_is_no_function_of_pythons_is_not_timed(method: str) -> None:
    class Text(str):
        __slots__ = ()
        number = 7

    before = dict(vars(Text))
    time_method(Text("a"), method, "reward/Text")
    assert dict(vars(Text)) == before


def test_events_of_the_users_callbacks_have_names(recording: Recorded) -> None:
    class Journal:
        on_time = 3

        def on_log(self) -> str:
            return "logged"

        def once(self) -> str:
            return "once"

    class Printer:
        def on_log(self) -> str:
            return "printed"

    Printer.__module__ = "transformers.trainer_callback"
    own, theirs = Journal(), Printer()
    handler = SimpleNamespace(callbacks=[own, theirs])
    for _ in range(2):
        name_callbacks(SimpleNamespace(callback_handler=handler))
    assert (own.on_log(), own.once(), theirs.on_log()) == ("logged", "once", "printed")
    assert recording.names == ["callback/Journal.on_log"]
    assert Journal.on_time == 3
    name_callbacks(SimpleNamespace())  # a trainer without a handler
