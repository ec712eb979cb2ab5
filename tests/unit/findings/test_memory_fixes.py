"""What a run may set where memory is short, by the phase that is short of it."""

from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings import RunView, device_memory
from grpo_doctor.whatif import Withheld
from grpo_doctor.whatif.room import Room
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, run

COLOCATED = {
    "vllm.use": True, "vllm.mode": "colocate", "vllm.gpu_memory_utilization": 0.5,
    "train.micro_batch": 4, "train.grad_accumulation": 2, "train.gradient_checkpointing": False,
    "offload.optimizer": False,
}  # fmt: skip
CACHE, PASSES = "vllm.gpu_memory_utilization", "train.micro_batch"
AGAIN, OFFLOAD = "train.gradient_checkpointing", "offload.optimizer"


def fixes(where: str | None, *, ranks: int = 2, **changes: Any) -> dict[str | None, object]:
    knobs = {**COLOCATED, **{name.replace("__", "."): v for name, v in changes.items()}}
    view = RunView.of(run(knobs=knobs, ranks=ranks).build())
    return {fix.knob: fix.after for fix in device_memory.fixes_for_memory(view, where)}


@pytest.mark.parametrize(("where", "knobs"), [
    ("rollout", [CACHE, PASSES, AGAIN, OFFLOAD]),
    ("sync", [CACHE, PASSES, AGAIN]),
    ("init", [CACHE, PASSES, AGAIN]),
    ("train", [PASSES, AGAIN]),
    (None, [PASSES, AGAIN]),
])  # fmt: skip
def test_the_engine_gives_memory_where_it_holds_it(where: str | None, knobs: list[str]) -> None:
    assert list(fixes(where)) == knobs


def test_how_much_each_setting_changes() -> None:
    assert fixes("rollout") == {CACHE: 0.4, PASSES: 2, AGAIN: True, OFFLOAD: True}
    assert fixes("rollout", vllm__gpu_memory_utilization=0.15)[CACHE] == 0.1


@pytest.mark.parametrize(("changes", "withheld"), [
    ({"vllm__mode": "server"}, {CACHE, OFFLOAD}),
    ({"vllm__use": False}, {CACHE, OFFLOAD}),
    ({"vllm__gpu_memory_utilization": None}, {CACHE}),
    ({"train__micro_batch": 1}, {PASSES}),
    ({"train__micro_batch": 3}, {PASSES}),
    ({"train__grad_accumulation": "auto"}, {PASSES}),
    ({"train__micro_batch": "auto"}, {PASSES}),
    ({"train__gradient_checkpointing": True}, {AGAIN}),
    ({"offload__optimizer": True}, {OFFLOAD}),
])  # fmt: skip
def test_what_cannot_be_changed_is_not_advised(changes: dict[str, Any], withheld: set[str]) -> None:
    assert set(fixes("rollout", **changes)) == {CACHE, PASSES, AGAIN, OFFLOAD} - withheld


def test_two_completions_can_be_halved() -> None:
    assert fixes("train", train__micro_batch=2)[PASSES] == 1


def test_weights_are_spread_over_several_ranks_alone() -> None:
    preset: Any = {"deepspeed__preset": "zero2"}
    assert fixes("rollout", **preset)["deepspeed.preset"] == "zero3"
    assert OFFLOAD not in fixes("rollout", **preset)
    assert "deepspeed.preset" not in fixes("rollout", ranks=1, **preset)
    assert "deepspeed.preset" not in fixes("rollout", deepspeed__preset="zero3")


def test_more_passes_change_sums_and_one_switch_does_not() -> None:
    view = RunView.of(run(knobs=COLOCATED).build())
    safety = {fix.knob: fix.safety for fix in device_memory.fixes_for_memory(view, "train")}
    assert safety == {PASSES: "changes-numerics", AGAIN: "same-math"}
    (passes, _) = device_memory.fixes_for_memory(view, "train")
    assert passes.spelling == "--per_device_train_batch_size 2 --gradient_accumulation_steps 4"


@pytest.mark.parametrize(("framework", "version", "flag"), [
    ("verl", "0.6.0", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"),
    ("openrlhf", "0.9.0", "--micro_train_batch_size 2"),
])  # fmt: skip
@pytest.mark.parametrize("recorded", [{}, {"train.grad_accumulation": 2}])
def test_where_passes_follow_from_their_size_that_alone_is_set(
    framework: str, version: str, flag: str, recorded: dict[str, Any]
) -> None:
    knobs = {"train.micro_batch": 4, **recorded}
    build = run(knobs=knobs, framework=framework, framework_version=version)
    view = RunView.of(build.build())
    fix = device_memory.fixes_for_memory(view, "train")[0]
    assert (fix.spelling, fix.typed, fix.pasted) == (flag, flag, True)
    assert (fix.after, fix.safety, fix.predicted) == (2, "changes-numerics", None)
    larger = device_memory.in_passes_of(view, 2, 4, Withheld("not known"), risk="")
    assert (larger.spelling, larger.typed) == (flag, flag)


def test_a_run_without_steps_has_no_predictions() -> None:
    view = RunView.of(TraceBuilder(knobs=COLOCATED).build())
    for fix in device_memory.fixes_for_memory(view, "rollout"):
        assert fix.predicted is None


@pytest.mark.parametrize(("knobs", "changed"), [
    ({"offload.optimizer": True}, ("offload.optimizer", False)),
    ({"offload.optimizer": True, "vllm.sleep_level": 1}, ("offload.optimizer", False)),
    ({"vllm.sleep_level": 1}, ("vllm.sleep_level", 0)),
    ({"vllm.sleep_level": 0}, (None, None)),
    ({}, (None, None)),
])  # fmt: skip
def test_what_moves_memory_out_of_the_way_is_switched_off_by_its_own_setting(
    knobs: dict[str, Any], changed: tuple[str | None, object]
) -> None:
    view = RunView.of(run({**HEALTHY, "offload": 2.0}, knobs=knobs).build())
    fix = device_memory.offload_off(view, Room(True, "enough"))
    assert (fix.knob, fix.after) == changed
    assert fix.pasted is (fix.knob is not None)
    assert view.predicted(fix).predicted is not None


def test_room_that_was_not_seen_is_to_be_checked_first() -> None:
    view = RunView.of(run(knobs={"offload.optimizer": True}).build())
    risks = [
        device_memory.offload_off(view, Room(fits, "seen")).risk for fits in (True, False, None)
    ]
    assert risks[0].startswith("Needs GPU memory: seen.")
    assert all(risk.startswith("First check") for risk in risks[1:])
