"""What training jobs of various shapes give to their streams, step by step."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.nccl_rules.world import Step

WORLD, SYNC = "default_pg", "sync"


@dataclass(frozen=True)
class Shape:
    """How many ranks are parallel in which way. Ranks count tensor first, then data, then stage.

    `experts` are ranks of one stage that exchange tokens; `style` is the loop around the layers.
    """

    tensor: int = 1
    data: int = 1
    stages: int = 1
    experts: int = 1
    style: str = "megatron"  # or "fsdp"
    layers: int = 2
    batches: int = 2
    batched: bool = False  # sends and receives of a stage in one launch

    @property
    def world(self) -> int:
        """How many ranks."""
        return self.tensor * self.data * self.stages


@dataclass
class Groups:
    """Groups by their name in torch, with members, and each one's kind."""

    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, ranks: tuple[int, ...]) -> None:
        """One more group; names count up."""
        name = str(len(self.members))
        self.members[name] = ranks
        self.kinds[name] = kind

    def of(self, rank: int, kind: str) -> str:
        """The group of this kind that a rank is in, "" for none."""
        for name, own in self.kinds.items():
            if own == kind and rank in self.members[name]:
                return name
        return ""


def groups_of(shape: Shape) -> Groups:
    """All groups of a job."""
    groups = Groups()
    everyone = tuple(range(shape.world))
    groups.add(WORLD, everyone)
    t, d, p = shape.tensor, shape.data, shape.stages
    per_stage = t * d
    for stage in range(p):
        first = stage * per_stage
        for data in range(d if t > 1 else 0):
            groups.add("tp", tuple(first + data * t + k for k in range(t)))
        for k in range(t if d > 1 else 0):
            groups.add("dp", tuple(first + data * t + k for data in range(d)))
        for start in range(0, per_stage if shape.experts > 1 else 0, shape.experts):
            groups.add("ep", tuple(range(first + start, first + start + shape.experts)))
    for k in range(per_stage if p > 1 else 0):
        groups.add("pp", tuple(k + stage * per_stage for stage in range(p)))
    groups.add(SYNC, everyone)
    return groups


@dataclass
class Writer:
    """The program of one rank. All ranks draw from equally seeded generators."""

    shape: Shape
    groups: Groups
    rank: int
    draw: random.Random
    steps: list[Step] = field(default_factory=list)
    tokens: Mapping[tuple[str, int], list[list[int]]] = field(default_factory=dict)
    exchanges: int = 0
    tags: int = 0
    batch: int = 0
    waiting: list[str] = field(default_factory=list)

    def call(self, op: str, kind: str, size: int, line: int, *, later: bool = False) -> None:
        """A collective; nothing where the rank has no such group. `later`: async."""
        group = self.groups.of(self.rank, kind)
        if not group:
            return
        members = len(self.groups.members[group])
        input_size, output_size = (size,), (size,)
        if op == "all_gather":
            output_size = (size * members,)
        if op == "reduce_scatter":
            input_size = (size * members,)
        tag = self._tag() if later else ""
        self.steps.append(Step("launch", op, group, input_size, output_size, tag=tag, line=line))

    def _tag(self) -> str:
        self.tags += 1
        self.waiting.append(f"t{self.tags}")
        return self.waiting[-1]

    def exchange(self, line: int) -> None:
        """Tokens to experts: first how many, which the host reads, then the uneven parts."""
        group = self.groups.of(self.rank, "ep")
        if not group:
            return
        members = self.groups.members[group]
        own = members.index(self.rank)
        self.exchanges += 1
        table = random.Random(f"{group}/{self.exchanges}")
        counts = [[table.randrange(80, 140) for _ in members] for _ in members]
        sent, got = sum(counts[own]), sum(row[own] for row in counts)
        self.call("all_gather", "ep", len(members), line)
        self.steps.append(Step("sync"))
        for rows_in, rows_out in ((sent, got), (got, sent)):
            self.steps.append(
                Step("launch", "all_to_all", group, (rows_in, 64), (rows_out, 64), line=line + 1)
            )

    def transfer(self, op: str, to: int, line: int, *, later: bool = False) -> None:
        """A send to, or a receive from, another stage."""
        stride = self.shape.tensor * self.shape.data
        peer = self.rank % stride + to * stride
        tag = self._tag() if later else ""
        size = (512, 64)
        group = self.groups.of(self.rank, "pp")
        self.steps.append(
            Step("launch", op, group, size, size, peer=peer, tag=tag, line=line, batch=self.batch)
        )

    def wait_all(self) -> None:
        """The compute stream waits for all that is under way."""
        self.steps += [Step("wait", tag=tag) for tag in self.waiting]
        self.waiting.clear()

    def compute(self, seconds: float) -> None:
        """A kernel."""
        self.steps.append(Step("compute", seconds=seconds))


def program(shape: Shape, groups: Groups, rank: int, rounds: int, seed: int) -> list[Step]:
    """Rounds of GRPO: rollout and rewards, log-probs, training, weight sync, metrics."""
    writer = Writer(shape, groups, rank, random.Random(seed))
    for _ in range(3):
        writer.call("broadcast", WORLD, 4096, 5)
    for number in range(rounds):
        _round(writer, number)
    writer.call("barrier", WORLD, 1, 99)
    writer.steps.append(Step("sync"))
    return writer.steps


def _round(writer: Writer, number: int) -> None:
    rollout_s = 0.05 + 0.01 * ((writer.rank * 31 + number * 17) % 10)
    writer.steps.append(Step("host", seconds=rollout_s))
    writer.call("all_gather", WORLD, 16, 10)  # rewards
    writer.steps.append(Step("sync"))
    if writer.shape.style == "fsdp":
        _sharded(writer)
    else:
        _staged(writer)
    writer.wait_all()
    writer.call("all_reduce", WORLD, 1, 40)  # gradient norm
    writer.steps.append(Step("sync"))
    for bucket in range(2):
        writer.call("broadcast", SYNC, 8192 + bucket, 50)
    writer.call("all_reduce", WORLD, 8, 60)  # metrics
    if number % 2:
        writer.steps.append(Step("sync"))


def _sharded(writer: Writer) -> None:
    """Layers whose parts are gathered ahead of their use."""
    kind = "dp" if writer.groups.of(writer.rank, "dp") else WORLD
    for line in (20, 30):
        for layer in range(writer.shape.layers * 2):
            writer.call("all_gather", kind, 2048 + layer, line, later=True)
            writer.compute(2e-3)
            writer.call("all_reduce", "tp", 777 + layer, line + 1)
            if line == 30:
                writer.call("reduce_scatter", kind, 2048 + layer, line + 2, later=True)
            if layer % 2:
                writer.wait_all()


def _staged(writer: Writer) -> None:
    """All batches forward through the stages, then all backward."""
    shape = writer.shape
    stage = writer.rank // (shape.tensor * shape.data)
    for _ in range(shape.batches):
        if stage:
            _move(writer, "recv", stage - 1, 20)
        _layers(writer, 22)
        if stage < shape.stages - 1:
            _move(writer, "send", stage + 1, 21)
    for _ in range(shape.batches):
        if stage < shape.stages - 1:
            _move(writer, "recv", stage + 1, 30)
        _layers(writer, 32)
        if stage:
            _move(writer, "send", stage - 1, 31)
    for bucket in range(2):
        writer.call("reduce_scatter", "dp", 1024 + bucket, 36, later=True)


def _move(writer: Writer, op: str, to: int, line: int) -> None:
    if writer.shape.batched:
        writer.batch = len(writer.steps) + 1
    writer.transfer(op, to, line, later=op == "send" and not writer.shape.batched)
    writer.batch = 0


def _layers(writer: Writer, line: int) -> None:
    for layer in range(writer.shape.layers):
        writer.compute(1e-3)
        writer.call("all_gather", "tp", 512, line)
        writer.exchange(line + 1)
        writer.call("reduce_scatter", "tp", 512 + layer % 2, line + 3)
