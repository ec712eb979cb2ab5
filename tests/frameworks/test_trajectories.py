"""Trajectories of real jobs against stopwatches in their tools, rewards and engines.

A real AsyncGRPOTrainer with a stand-in of vLLM's server, verl's own agent loop with a scripted
engine, OpenRLHF's agents with vLLM's CPU build, TRL's GRPOTrainer with scripted answers, ms-swift's
schedulers with an engine that sleeps. They need the environments of `make frameworks`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from grpo_doctor.trace.read import load
from grpo_doctor_reports.schema.trajectories import STATES, Trajectories
from tests.frameworks import test_async_trl, test_phases_openrlhf, test_phases_verl
from tests.frameworks.environments import python_of
from tests.frameworks.inputs import write_model, write_prompts
from tests.frameworks.jobs import CODE, Setting, command
from tests.frameworks.recorded_jobs import ENVIRONMENTS, recording, run_logged, stopwatch

SECONDS = 1.0
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not ENVIRONMENTS.exists(), reason="`make frameworks` runs it"),
]


def truth_s(path: Path) -> float:
    """What all calls took together, by the part's own stopwatch."""
    return sum(calls_s(path))


def calls_s(path: Path) -> list[float]:
    times_ns = np.loadtxt(path, dtype=np.int64, ndmin=2)
    return list(np.diff(times_ns, axis=1)[:, 0] / 1e9)


def ran(words: Sequence[str], variables: Mapping[str, str], folder: Path) -> Trajectories:
    code = run_logged([*recording(folder / "run"), *words], variables, folder)
    assert code == 0, (folder / "job.log").read_text()[-3000:]
    return trajectories(folder / "run")


def trajectories(run: Path) -> Trajectories:
    found = load(run)
    assert found.trajectories is not None
    assert not found.loss.any, found.loss
    for one in found.trajectories.shown:
        total_s = one.seconds + one.states.get("buffer", 0.0)
        assert sum(one.states.values()) == pytest.approx(total_s, rel=0.01)
        assert set(one.states) <= set(STATES)
        drawn_s = sum(part.end_s - part.start_s for part in one.parts)
        assert drawn_s + one.states.get("other", 0.0) == pytest.approx(total_s, rel=0.01)
    return found.trajectories


def test_an_async_trainer_of_trl(tmp_path: Path) -> None:
    seconds = {"tool": SECONDS, "reward": SECONDS}
    case = test_async_trl.Case("tool", "", "", SECONDS, seconds)
    training = test_async_trl.run(case, tmp_path / "job")
    found = trajectories(Path(f"{training.folder}.run"))
    states = {name: spread.total for name, spread in found.states.items()}
    (tool,) = found.tools
    assert (tool.name, tool.errors, tool.open) == ("look_up", 0, 0)
    assert states["tool"] == pytest.approx(truth_s(training.folder / "tool.txt"), rel=0.05)
    # A group of four is scored in one call, which each of them waits for.
    assert states["reward"] == pytest.approx(4 * truth_s(training.folder / "reward.txt"), rel=0.05)
    answers = len(np.loadtxt(training.folder / "engine.txt", ndmin=2))
    assert states["generate"] == pytest.approx(answers * SECONDS, rel=0.05)
    assert states["other"] < 0.05 * sum(states.values())
    assert found.outcomes["trained"] >= 4 * test_async_trl.STEPS
    assert found.staleness is not None
    assert sum(found.flow.trained) == found.outcomes["trained"]
    assert found.syncs.seconds > found.syncs.waiting_s > 0


@pytest.mark.skipif(not test_phases_verl.PYTHON.exists(), reason="needs verl")
def test_an_agent_loop_of_verl(tmp_path: Path) -> None:
    rollout, tools = "actor_rollout_ref.rollout", CODE / "verl_tools.py"
    options = (
        f"{rollout}.multi_turn.enable=True", f"{rollout}.agent.default_agent_loop=tool_agent",
        f"{rollout}.multi_turn.function_tool_path={tools}", f"{rollout}.multi_turn.format=hermes",
        "data.max_response_length=512", f"{test_phases_verl.REWARD}path={tools}",
        "data.train_batch_size=2", f"{test_phases_verl.ACTOR}ppo_mini_batch_size=2",
    )  # fmt: skip
    folder = tmp_path / "job"
    # Twice as long, since what Ray takes to carry a request counts as generating.
    slept = {f"{part}_SLEEP_S": str(2 * SECONDS) for part in ("TOOL", "ENGINE", "REWARD")}
    done = test_phases_verl.job(
        folder, *recording(folder / "run"), options=options, TRUTH=str(folder), **slept
    )
    assert done.code == 0, done.output[-3000:]
    found = trajectories(folder / "run")
    samples = 8 * test_phases_verl.STEPS
    assert found.outcomes == {"trained": samples}
    assert found.flow.trained == found.flow.produced == [8] * test_phases_verl.STEPS
    assert found.staleness is not None
    assert found.staleness.total == 0  # each step trains what its own weights have said
    # Of each trajectory: what Ray takes to carry a request counts, and on a busy machine the first
    # ones take seconds. A tool is called in the process of the agent.
    asked = {"generate": ("engine", 3), "tool": ("tool", 1), "reward": ("reward", 1)}
    for state, (part, times) in asked.items():
        usual_s = times * float(np.median(calls_s(folder / f"{part}.txt")))
        assert found.states[state].p50 == pytest.approx(usual_s, rel=0.05), state
    tool_s = truth_s(folder / "tool.txt")
    assert found.states["tool"].total == pytest.approx(tool_s, rel=0.05)
    assert found.states["other"].total < 0.15 * found.seconds.total
    tools_found = {tool.name: (tool.calls, tool.errors, tool.time_outs) for tool in found.tools}
    assert tools_found == {"look_up": (samples, 0, 0), "browse": (samples, 0, samples)}


def openrlhf(agent: str, tmp_path: Path, *options: str) -> tuple[Trajectories, Path]:
    """What an agent of `openrlhf_agent.py` did, and where its stopwatches are."""
    folder = tmp_path / "job"
    folder.mkdir()
    settings = {
        "train.num_episodes": 1, "data.max_samples": 24, "data.max_len": 256,
        "algo.advantage.estimator": "reinforce",
        "train.agent_func_path": CODE / "openrlhf_agent.py",
    }  # fmt: skip
    words = [str(word) for name, value in settings.items() for word in (f"--{name}", value)]
    slept = {f"{part}_SLEEP_S": str(SECONDS) for part in ("TOOL", "REWARD")}
    setting = Setting(
        "openrlhf", test_phases_openrlhf.PYTHON, write_model(tmp_path / "model"),
        write_prompts(tmp_path / "data"), folder, (*words, *options),
        {"AGENT": agent, "TRUTH": str(folder), **slept},
    )  # fmt: skip
    job, variables = command(setting)
    found = ran(job, variables, folder)
    assert found.outcomes == {"trained": 96}
    assert found.flow.trained == [16] * 6
    assert found.states["other"].total < 0.01 * found.seconds.total
    return found, folder


@pytest.mark.skipif(not test_phases_openrlhf.PYTHON.exists(), reason="needs OpenRLHF")
def test_an_environment_of_openrlhf_beside_the_training(tmp_path: Path) -> None:
    options = "--train.async_enable", "--train.partial_rollout_enable"
    found, folder = openrlhf("turns", tmp_path, *options)
    tools = {tool.name: (tool.calls, tool.errors) for tool in found.tools}
    assert tools == {"AgentInstance.step": (3 * 96, 0), "AgentInstance.reset": (96, 0)}
    for tool in found.tools:
        path = folder / f"{tool.name.partition('.')[2]}.txt"
        assert tool.seconds == pytest.approx(truth_s(path), rel=0.05)
    # Whether a request is under way at one of the six pauses of 0.15 s is chance.
    assert found.states["buffer"].total > 0
    weights = [(one.numbers["version"], one.numbers["last_version"]) for one in found.shown]
    assert any(first < last for first, last in weights)  # new ones came while it was under way
    assert found.staleness is not None
    assert found.staleness.total <= 96


@pytest.mark.skipif(not test_phases_openrlhf.PYTHON.exists(), reason="needs OpenRLHF")
def test_a_reward_of_openrlhf_waits_for_a_thread(tmp_path: Path) -> None:
    found, folder = openrlhf("reward", tmp_path)
    reward_s = truth_s(folder / "reward.txt")
    assert found.states["reward"].total == pytest.approx(reward_s, rel=0.05)
    asked, began = (np.loadtxt(folder / f"{name}.txt")[:, 0] for name in ("asked", "reward"))
    queue_s = float(began.sum() - asked.sum()) / 1e9
    assert queue_s > SECONDS
    assert found.states["queue"].total == pytest.approx(queue_s, rel=0.05)
    assert found.staleness is not None
    assert found.staleness.total == 0


@pytest.mark.parametrize("way", ["tools", "environment", "rollout_func"])
def test_a_trainer_of_trl_with(way: str, tmp_path: Path) -> None:
    """Two ranks, four samples of each in each of three steps; every second calls its tools."""
    folder, ranks, batches = tmp_path / "job", 2, 2 * 3
    folder.mkdir()
    times = json.dumps(dict.fromkeys(("tool", "reset", "engine", "own", "reward"), SECONDS))
    words = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}",
        CODE / "trl_tools.py", write_model(folder / "model"), folder, times, way,
    ]  # fmt: skip
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    found = ran(list(map(str, words)), variables, folder)
    slept = stopwatch(folder)  # of rank 0; both do the same
    assert found.outcomes == {"trained": 4 * batches}
    assert found.flow.trained == found.flow.produced == [4 * ranks] * 3
    queue = {"tools": 8, "environment": 8 + 3 * 4, "rollout_func": 0}[way]  # sleeps of others
    truth = {
        "reward": 4 * ranks * slept["reward"],  # a rank scores all its samples at once
        "tool": ranks * (slept["tool"] + slept["reset"]),
        "generate": ranks * 3 * slept["engine"],  # turns of four samples, then of two
        "queue": queue * batches * SECONDS,
        "other": 4 * ranks * slept["own"],
    }
    for state, seconds in truth.items():
        if seconds:
            assert found.states[state].total == pytest.approx(seconds, rel=0.05), state
    calls = {tool.name: (tool.calls, tool.time_outs) for tool in found.tools}
    assert (
        calls
        == {
            "tools": {"look_up": (2 * batches, 0), "browse": (2 * batches, 2 * batches)},
            "environment": {"Maze.reset": (4 * batches, 0), "Maze.move": (2 * batches, 0)},
            "rollout_func": {},
        }[way]
    )


SWIFT = python_of(ENVIRONMENTS / "env-swift")


@pytest.mark.skipif(not SWIFT.exists(), reason="needs ms-swift")
def test_a_scheduler_of_swift_with_an_engine_that_sleeps(tmp_path: Path) -> None:
    words = [str(word) for word in (SWIFT, CODE / "swift_turns.py", tmp_path, SECONDS)]
    found = ran(words, os.environ, tmp_path)
    assert found.outcomes == {"ready": 8}
    for state, part in {"tool": "tool", "generate": "engine"}.items():
        seconds = truth_s(tmp_path / f"{part}.txt")
        assert found.states[state].total == pytest.approx(seconds, rel=0.05)
    assert {tool.name: tool.calls for tool in found.tools} == {
        "Maze.on_turn_end": 8 * 3, "Maze.step": 8 * 2,
    }  # fmt: skip


@pytest.mark.skipif(not SWIFT.exists(), reason="needs ms-swift")
def test_schedulers_in_the_ranks_of_swift(tmp_path: Path) -> None:
    """Two ranks, four samples of each in each of two steps, and three turns of each."""
    folder = tmp_path / "job"
    folder.mkdir()
    options = {
        "external_plugins": CODE / "swift_maze.py", "multi_turn_scheduler": "maze",
        "max_turns": 3, "max_steps": 2,
    }  # fmt: skip
    words = tuple(str(word) for name, value in options.items() for word in (f"--{name}", value))
    setting = Setting(
        "swift", SWIFT, write_model(tmp_path / "model"), write_prompts(tmp_path / "data"), folder,
        words, {"TRUTH": str(folder)},
    )  # fmt: skip
    job, variables = command(setting)
    found = ran(job, variables, folder)
    assert found.outcomes == {"trained": 16}
    assert found.flow.trained == [8, 8]
    (tool,) = found.tools
    assert (tool.name, tool.calls, tool.errors) == ("Maze.step", 2 * 16, 0)
    assert found.states["tool"].total == pytest.approx(truth_s(folder / "tool.txt"), rel=0.05)
    # Three others of the rank wait for each call.
    assert found.states["queue"].total > 3 * 0.95 * tool.seconds
    assert found.states["reward"].total > 0
    assert found.states["other"].total < 0.05 * found.seconds.total
    assert {one.requests for one in found.shown} == {3}


SLIME = os.environ.get("SLIME_PATH", "")


@pytest.mark.skipif(not SLIME, reason="needs SLIME_PATH: a checkout of slime, and what it imports")
@pytest.mark.parametrize("way", ["samples", "turns", "groups"])
def test_a_rollout_of_slime_with_a_router_that_sleeps(way: str, tmp_path: Path) -> None:
    """Two rollouts of four groups of four, at most four samples at the engines at once."""
    words = [sys.executable, CODE / "slime_rollout.py", write_model(tmp_path / "m"), tmp_path, way]
    found = ran(list(map(str, words)), {**os.environ, "PYTHONPATH": SLIME}, tmp_path)
    rollouts, kept = 2, 16
    states = {name: spread.total for name, spread in found.states.items()}
    asked_s = truth_s(tmp_path / "engine.txt")
    assert states["engine queue"] == pytest.approx(asked_s / 3, rel=0.05)
    assert states["prefill"] == pytest.approx(asked_s / 6, rel=0.05)
    assert states["decode"] == pytest.approx(asked_s / 2, rel=0.05)
    assert states["queue"] > 0
    scored_s = {"samples": 1, "turns": 0, "groups": 4}[way]
    if scored_s:
        reward_s = scored_s * truth_s(tmp_path / "reward.txt")
        assert states["reward"] == pytest.approx(reward_s, rel=0.05)
    if way == "turns":
        assert states["other"] == pytest.approx(truth_s(tmp_path / "own.txt"), rel=0.05)
    else:
        assert states.get("other", 0.0) < 0.02 * found.seconds.total
    if way == "groups":
        assert found.outcomes["waiting"] == rollouts * kept  # the job has no trainer
        assert found.outcomes["dropped: filtered"] >= kept
    else:
        assert found.outcomes == {"ready": rollouts * kept}
