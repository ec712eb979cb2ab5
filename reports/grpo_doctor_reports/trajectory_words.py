"""Trajectories in sentences, for page, terminal and Markdown."""

from __future__ import annotations

from grpo_doctor_reports import formatting
from grpo_doctor_reports.schema.trajectories import Spread, ToolEntry, Trajectories

# What each state is, for those who have not met it.
MEANINGS = {
    "queue": "waits for its group, a server or the reward",
    "engine queue": "its request waits in the engine",
    "prefill": "the engine computes its prompt",
    "decode": "the engine generates tokens",
    "generate": "the rest of its requests: all of one whose engine was not seen",
    "tool": "calls a tool or its environment",
    "reward": "is scored",
    "paused": "the engine stands still for new weights",
    "buffer": "is ready and waits for the trainer",
    "other": "not covered by a hook",
}
_TOOLS, _STATES = 2, 3


def counted(trajectories: Trajectories) -> str:
    """Return how many there are."""
    return formatting.count(trajectories.count, "trajectory", "trajectories")


def sentences(trajectories: Trajectories | None) -> list[str]:
    """Return the main numbers; [] without trajectories."""
    if trajectories is None:
        return []
    seconds = trajectories.seconds
    most = sorted(trajectories.states.items(), key=lambda state: -state[1].total)[:_STATES]
    shares = ", ".join(f"{n} {formatting.share(share_of(s, trajectories))}" for n, s in most)
    outcomes = ", ".join(f"{n:,} {words}" for words, n in trajectories.outcomes.items())
    lengths = f"median {formatting.seconds(seconds.p50)}, p99 {formatting.seconds(seconds.p99)}"
    first = f"{counted(trajectories)} ({outcomes}): {lengths} until ready; most time: {shares}."
    tools = [f"Tool {_tool(tool)}." for tool in trajectories.tools[:_TOOLS]]
    return [first, *tools, *sync_sentences(trajectories)]


def _tool(tool: ToolEntry) -> str:
    calls = formatting.count(tool.calls, "call")
    lengths = f"median {formatting.seconds(tool.p50_s)}, p99 {formatting.seconds(tool.p99_s)}"
    counts = {"failed": tool.errors, "timed out": tool.time_outs, "never ended": tool.open}
    bad = [f"{count:,} {words}" for words, count in counts.items() if count]
    return ", ".join([f"{tool.name}: {calls}", lengths, *bad])


def sync_sentences(trajectories: Trajectories) -> list[str]:
    """Return what weight syncs did, where more is known than how long they took."""
    syncs = trajectories.syncs
    parts = {
        "waiting for rollouts in flight": syncs.waiting_s,
        "transfer": syncs.transfer_s,
        "load": syncs.load_s,
    }
    known = [f"{name} {formatting.share(s / syncs.seconds)}" for name, s in parts.items() if s]
    total = formatting.seconds(syncs.seconds)
    return [f"Weight syncs: {', '.join(known)} of {total}."] if known else []


def share_of(state: Spread, trajectories: Trajectories) -> float:
    """Return a state's share of all trajectories' time."""
    total = sum(each.total for each in trajectories.states.values())
    return state.total / total if total else 0.0
