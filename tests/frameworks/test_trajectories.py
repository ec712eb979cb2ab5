"""Trajectories of real jobs against stopwatches in their tools, rewards and engines.

A real AsyncGRPOTrainer with a stand-in of vLLM's server, and verl's own agent loop with a scripted
engine. They need the environments of `make frameworks`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from grpo_doctor.trace.read import load
from grpo_doctor_reports.schema.trajectories import STATES, Trajectories
from tests.frameworks import test_async_trl, test_phases_verl
from tests.frameworks.jobs import CODE
from tests.frameworks.recorded_jobs import ENVIRONMENTS, recording

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
