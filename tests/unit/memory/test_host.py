"""A host's memory: which entries it has, and for how many processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from grpo_doctor.memory import GIB, RolloutEngine, Setup, card_bytes, model_shape
from grpo_doctor.memory.facts import calibration
from grpo_doctor.memory.host import host_pool, pinned
from grpo_doctor.memory.states import states_of
from tests.unit.memory.tiny import ALONE

SEVEN = model_shape("Qwen/Qwen2.5-7B")
FULL = Setup(SEVEN, card_bytes("A100-80G"), ranks=4)


def entries(setup: Setup) -> dict[str, int]:
    sized = replace(setup, host_bytes=GIB)
    pool = host_pool(sized, states_of(sized, calibration()), calibration())
    assert pool
    return {entry.name: entry.bytes for entry in pool.phases[0].components}


def test_every_rank_is_a_process_but_of_one_that_spreads_its_layers() -> None:
    four, alone = entries(FULL)["processes"], entries(replace(FULL, ranks=1))["processes"]
    assert four == 4 * alone
    assert entries(replace(FULL, engine="device_map"))["processes"] == alone
    assert entries(replace(FULL, ranks=8, ranks_per_node=4))["processes"] == four


@pytest.mark.parametrize("by_zero", [False, True])
@pytest.mark.parametrize("by_framework", [False, True])
def test_an_optimizer_is_on_the_host_once(by_zero: bool, by_framework: bool) -> None:
    setup = replace(FULL, zero_offload_optimizer=by_zero, offload_optimizer=by_framework)
    names = entries(setup)
    assert ("offloaded optimizer" in names) is by_zero
    assert ("optimizer during rollouts" in names) is (by_framework and not by_zero)


@pytest.mark.parametrize(("level", "mode"), [(1, "colocate"), (2, "colocate"), (1, "server")])
def test_an_engine_that_sleeps_lightly_beside_the_trainer_keeps_its_weights(
    level: int, mode: Literal["colocate", "server"]
) -> None:
    engine = replace(FULL.rollout_engine, sleep_level=level)
    names = entries(replace(FULL, rollout=mode, rollout_engine=engine))
    assert ("sleeping engine's weights" in names) is (level == 1 and mode == "colocate")


def test_a_host_of_unknown_size_has_no_pool() -> None:
    states = states_of(FULL, calibration())
    assert host_pool(replace(FULL, host_bytes=None), states, calibration()) is None
    pool = host_pool(replace(FULL, host_bytes=2**40), states, calibration())
    assert pool is not None
    assert pool.role == "host"


@pytest.mark.parametrize(
    ("size", "allocated"), [(0, 0), (0.4, 0), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1025, 2048)]
)
def test_pinned_memory_comes_in_powers_of_two(size: float, allocated: int) -> None:
    assert pinned(size) == allocated


ALL = 26_090  # parameters of the model that one can work out by hand
SLEEPING = RolloutEngine(sleep_level=1, tensor_parallel=2)


@pytest.mark.parametrize(
    ("change", "entry", "size"),
    [
        ({}, "processes", 4 * 8 * GIB),
        ({"loader_workers": 3}, "loader processes", 4 * 3 * GIB),
        ({"loader_workers": 3, "engine": "device_map"}, "loader processes", 3 * GIB),
        # 16 bytes of each parameter, divided over four ranks: 104,360, rounded up.
        ({"zero_offload_optimizer": True}, "offloaded optimizer", 4 * (1 << 17)),
        ({"zero_offload_parameters": True}, "offloaded parameters", 4 * (1 << 14)),
        ({"offload_weights": True}, "weights during rollouts", 4 * 2 * ALL),
        ({"offload_optimizer": True}, "optimizer during rollouts", 4 * 4 * ALL),
        ({"rollout": "colocate", "rollout_engine": SLEEPING}, "sleeping engine's weights", 4 * ALL),
        ({"ranks_per_node": 2, "offload_weights": True}, "weights during rollouts", 2 * 2 * ALL),
    ],
)  # fmt: skip
def test_each_entry_is_of_all_ranks_of_a_host(
    change: dict[str, Any], entry: str, size: int
) -> None:
    assert entries(replace(ALONE, ranks=4, **change))[entry] == size
