"""Trajectories of TRL's GRPOTrainer with tools, environments or a `rollout_func`.

A rank takes all its samples through each turn together: it generates for those that continue, then
calls their tools one sample after the other. So a sample waits for the tools of the others. Since
0.29 each sample has tools of its own, by which it is known whose call it is.
"""

from __future__ import annotations

from typing import Any

from grpo_doctor_probes.hooks.adapters import trl_trajectories as conversations
from grpo_doctor_probes.hooks.adapters.agent_trajectories import (
    Batch,
    around_batch,
    begun_together,
    during,
)
from grpo_doctor_probes.hooks.wrapping import Around, after, before
from grpo_doctor_probes.record import trajectories as record
from grpo_doctor_probes.record.trajectories import GENERATE, QUEUE, REWARD, Part, Trajectory

_TOOLS = ("_sync_tool_dicts", "_async_tool_dicts")  # of a trainer: a dictionary for each sample
_ENVIRONMENTS = ("environment_factories", "environments")  # since 1.8, and before
_AGENTIC = ("tools", "rollout_func", *_ENVIRONMENTS)


class _Batch(Batch):
    """The samples that this rank generates at once, in their order."""

    def __init__(self, trainer: Any, ones: list[Trajectory]) -> None:
        super().__init__(trainer, ones)
        self.syncing: list[Part] = []
        # In the loop of tools: tokens of the samples, and who called tools since the last turn.
        self.tokens: tuple[Any, Any] | None = None
        self.calling: set[int] = set()

    def speak(self, _trainer: Any, prompts: list[Any], *_: Any, **__: Any) -> None:
        """A turn, of all samples at first, then of those that called tools."""
        calling, self.calling = sorted(self.calling), set()
        if self.tokens is not None and len(calling) > len(prompts):
            # Some have no room for what a tool said. The prompts of the others begin as they did.
            left = ((each, self.tokens[0][each] + self.tokens[1][each]) for each in calling)
            calling = [next(n for n, ids in left if one[: len(ids)] == ids) for one in prompts]
        self.be(GENERATE, calling if self.tokens is not None else None)

    def call(self, trainer: Any, _prompts: Any, prompt_ids: Any, said: Any, *_: Any) -> None:
        """Begin the loop of tools."""
        self.tokens = prompt_ids, said
        self.be(QUEUE)
        for name in _TOOLS:
            setattr(trainer, name, _Tools(getattr(trainer, name)))

    def called(self, trainer: Any) -> None:
        """End the loop of tools."""
        self.tokens = None
        self.be("")
        for name in _TOOLS:
            setattr(trainer, name, list(getattr(trainer, name)))


class _Tools(list[dict[str, Any]]):
    """The tools of each sample: who looks into them is the sample whose turn it is."""

    def __getitem__(self, sample: Any) -> Any:
        tools, batch = super().__getitem__(sample), Batch.now
        if batch is None:
            return tools
        try:
            batch.calling.add(sample)
            one = batch.ones[sample]
            return {name: conversations.tool_call(name, tools[name], one) for name in tools}
        except Exception:  # noqa: BLE001 - a guest never raises into its host
            return tools


def _begin(trainer: Any, inputs: Any) -> None:
    """Begin a batch to train on, if a sample can have more than one turn."""
    is_agentic = any(getattr(trainer, name, None) for name in _AGENTIC)
    # Before 0.29 there are no environments, and all samples have the same tools.
    if not is_agentic or not trainer.model.training or not hasattr(trainer, "environments"):
        return
    ones = begun_together(inputs)
    if not ones:
        return
    batch = Batch.now = _Batch(trainer, ones)
    conversations.RESETTING[:] = [iter(ones)]
    if any(getattr(trainer, name, None) for name in _ENVIRONMENTS):
        batch.be(QUEUE)  # for the environments of the others


def _end(error: type[BaseException] | None) -> None:
    batch, Batch.now = Batch.now, None
    conversations.RESETTING.clear()
    conversations.BY_ENVIRONMENT.clear()
    if batch is not None:
        batch.ready(error)
        if error is None:
            record.taken(batch.ones[0].key)


def _gather(*_: Any, **__: Any) -> None:
    """Rewards are there, and are gathered from the other ranks."""
    if Batch.now is not None and Batch.now.state == REWARD:
        Batch.now.be(QUEUE)


def _watch_environments(trainer: Any, *_: Any, **__: Any) -> None:
    pools = getattr(trainer, "_environment_pool", {}).values()
    for environments in (*pools, getattr(trainer, "environments", None) or ()):
        for environment in environments:
            conversations.watch_environment(type(environment))


TRAINER: dict[str, Around] = {
    "GRPOTrainer.__init__": after(_watch_environments),
    "GRPOTrainer._generate_and_score_completions": around_batch(_begin, _end),
    "GRPOTrainer._generate_single_turn": during(
        # Afterwards they wait for the tools of others, or for nothing that is known.
        _Batch.speak,
        lambda batch, _: batch.be("" if batch.tokens is None else QUEUE),
    ),
    "GRPOTrainer._tool_call_loop": during(_Batch.call, _Batch.called),
    "GRPOTrainer._calculate_rewards": during(
        lambda batch, *_, **__: batch.be(REWARD), lambda batch, _: batch.ready()
    ),
    "gather": before(_gather),
}
ENGINE: dict[str, Around] = {
    "VLLMGeneration.sync_weights": during(
        # New weights before a turn: samples wait for them, within the state that they are in.
        lambda batch, *_, **__: batch.syncing.extend(one.part(QUEUE) for one in batch.ones),
        lambda batch, _: [part.end() for part in batch.syncing],
    )
}
