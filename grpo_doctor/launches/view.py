"""What a sanity rule may look at: a launch, the machine it is for, and its model's sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.knobs.model import Version, version_of
from grpo_doctor.launches.model import Launch, Source
from grpo_doctor.launches.processes import ONE_EACH

NO_FLAG = "(no flag in this framework)"


@dataclass(frozen=True, slots=True)
class Host:
    """The machine; None: not known. `shm_bytes` to `free_disk_bytes` are of this host alone.

    `nodes` is what the user says; `is_here`: the launch is for this machine and its files.
    """

    cards_per_node: int | None = None
    nodes: int | None = None
    card_bytes: int | None = None
    host_bytes: int | None = None
    server_cards: int | None = None
    shm_bytes: int | None = None
    free_disk_bytes: int | None = None
    is_here: bool = False


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What rules ask of a model."""

    heads: int
    kv_heads: int
    layers: int
    parameters: int
    max_positions: int | None = None
    experts: int | None = None
    pixels_per_token: int | None = None


@dataclass(frozen=True)
class View:
    """A launch, and what can be worked out of it."""

    launch: Launch
    host: Host
    model: ModelFacts | None = None

    def value(self, knob: str, otherwise: Any = None) -> Any:
        """Return what holds: said, or by default where all of the launch was read."""
        if self.launch.complete:
            return self.launch.value(knob, otherwise)
        return self.launch.settings.get(knob, otherwise)

    def integer(self, knob: str) -> int | None:
        """Return a whole number; None where there is none."""
        value = self.value(knob)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def integers(self, *names: str) -> tuple[int | None, ...]:
        """Return the same of several."""
        return tuple(map(self.integer, names))

    def degree(self, *names: str) -> int:
        """Return what these kinds of parallelism divide together; each is 1 where it is not set."""
        return math.prod(self.integer(name) or 1 for name in names)

    def sets(self, knob: str) -> bool:
        """Return whether the launch sets it."""
        return self.launch.sets(knob)

    def source(self, *names: str) -> Source | None:
        """Return where the first of these was set."""
        return next((self.launch.sources[k] for k in names if k in self.launch.sources), None)

    def flag(self, knob: str, value: Any) -> str:
        """Return the setting as the framework's flag, by the name that the launch uses if its
        version is unknown; its canonical name where there is none."""
        options, table = self.launch.options, self.launch.table
        rows = [r for r in knobs.TABLES[table] if r.knob == knob and r.key in options]
        return (
            self.launch.spell(knob, value)
            or next((knobs.written(table, row, value) for row in rows), None)
            or f"{knob} {value} {NO_FLAG}"
        )

    def flags(self, knob: str, values: Iterable[Any]) -> str:
        """`--x 2, 4 or 8`: one setting with all its valid values."""
        first, *others = [*values] or [None]
        if first is None:
            return ""
        *alternatives, last = [self.flag(knob, first), *map(str, others)]
        return f"{', '.join(alternatives)} or {last}" if alternatives else last

    def at_least(self, version: str) -> bool:
        """Whether the framework's version, the newest where unknown, is this one or later."""
        own = version_of(self.launch.version)
        return own is None or own >= (version_of(version) or ())

    def package(self, name: str) -> Version | None:
        """Return the version of a package that was stated or is installed."""
        return version_of(self.launch.versions.get(name))

    @cached_property
    def cards(self) -> int | None:
        """GPUs on each host that the command sees."""
        return self.launch.visible_gpus or self.host.cards_per_node

    @cached_property
    def processes_per_node(self) -> int | None:
        """Training processes on each host."""
        per_node = self.launch.processes_per_node
        return self.cards if per_node == ONE_EACH else per_node

    @cached_property
    def processes(self) -> int | None:
        """Training processes over all hosts."""
        if not self.launch.processes_known:
            return None
        return self.processes_per_node * self.nodes if self.processes_per_node else None

    @property
    def engine_sizes(self) -> list[int]:
        """GPUs that an engine may have: they divide the heads, and the GPUs that it shares."""
        ranks = self.processes if self.colocated else None
        return divisors(math.gcd(self.model.heads if self.model else 0, ranks or 0), 8)

    @cached_property
    def nodes(self) -> int:
        """Hosts that train; with Ray the launch alone says how many."""
        if self.launch.framework in ("verl", "openrlhf"):
            return self.launch.nodes
        return max(self.launch.nodes, self.host.nodes or 1)

    @cached_property
    def colocated(self) -> bool:
        """Whether the rollout engine lives on the trainer's GPUs."""
        if self.launch.framework == "verl":
            return True
        if self.launch.framework == "openrlhf":
            return bool(self.value("vllm.mode") == "colocate")
        mode = self.value("vllm.mode", "colocate")
        shared = mode == "colocate" and not self.launch.server and not self.engine_has_own_card
        return bool(self.value("vllm.use")) and shared

    @cached_property
    def engine_has_own_card(self) -> bool:
        """Whether a training command leaves vLLM a GPU that no process trains on."""
        started, cards = self.processes_per_node, self.cards
        if self.launch.role != "train" or started is None or cards is None:
            return False
        return self.launch.engine_has_own_card(started, cards)

    @cached_property
    def steps_per_generation(self) -> int:
        """Micro-batches that one rollout feeds."""
        steps = self.integer("rollout.steps_per_generation")
        return steps or self.integer("train.grad_accumulation") or 1

    @cached_property
    def length(self) -> int | None:
        """Tokens of the longest prompt and completion; None where the prompt has no limit."""
        prompt, completion = self.integer("data.max_length"), self.completion
        return prompt + completion if prompt and completion else None

    @cached_property
    def completion(self) -> int | None:
        """Tokens of the longest completion."""
        return self.integer("rollout.max_completion_length")

    @cached_property
    def sleeps(self) -> bool:
        """Whether the engine gives memory back between rollouts."""
        return bool(self.value("vllm.sleep_level"))


def divisors(number: int, limit: int = 64) -> list[int]:
    """Return the divisors of a number up to `limit`, ascending."""
    return [part for part in range(1, min(number, limit) + 1) if number % part == 0]
