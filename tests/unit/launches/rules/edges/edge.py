"""A launch at the very edge of a flaw, and the commands that many of them begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from grpo_doctor.launches import read
from grpo_doctor.launches.rule import Flaw
from grpo_doctor.launches.rules import load
from grpo_doctor.launches.view import Host, ModelFacts, View
from tests.unit.launches.pairs import EIGHT, QWEN_7B, REWARDS

RULES = {rule.id: rule for rule in load()}
GRPO = "swift rlhf --rlhf_type grpo --model m "
OURS = "torchrun --nproc_per_node 1 -m grpo_doctor_trainer --model m "
ROLLOUT = "swift rollout --model Qwen/Qwen2.5-7B-Instruct "
SERVE = "vllm serve Qwen/Qwen2.5-7B-Instruct "
COMPLETION, TENSOR = "--max_completion_length", "--vllm_tensor_parallel_size"
SHARE, SERVED_SHARE = "--vllm_gpu_memory_utilization", "--gpu-memory-utilization"
PROMPTS, GROUP = "data.train_batch_size=", "actor_rollout_ref.rollout.n="
MINI = "actor_rollout_ref.actor.ppo_mini_batch_size="
BY_MEGATRON = "actor_rollout_ref.actor.strategy=megatron"
ULYSSES = "actor_rollout_ref.actor.ulysses_sequence_parallel_size="
UNPADDED = "actor_rollout_ref.model.use_remove_padding="
OLD = {"ms-swift": "3.4.1"}
FLAWED, SOUND = True, False


@dataclass(frozen=True)
class Edge:
    """A launch, on a host and beside a server, and whether it has the flaw of a rule."""

    rule: str
    command: str
    flawed: bool
    host: Host = EIGHT
    model: ModelFacts | None = QWEN_7B
    versions: Mapping[str, str] = field(default_factory=dict)
    server: str | None = None

    @property
    def name(self) -> str:
        """The launch in one line, with what is unusual about it."""
        lines = " ; ".join(self.command.splitlines()).replace(str(REWARDS), "REWARDS")
        versions = " ".join(f"{name} {version}" for name, version in self.versions.items())
        unusual = (
            "" if self.host == EIGHT else _told(self.host),
            "" if self.model == QWEN_7B else str(self.model),
            versions,
            f"beside {self.server}" if self.server else "",
        )
        return "  # ".join([f"{self.rule} {lines}", *filter(None, unusual)])

    def flaw(self) -> Flaw | None:
        """What the rule says."""
        launch = read([self.command], versions=self.versions)
        if self.server is not None:
            launch = replace(launch, companions=(read([self.server]),))
        return RULES[self.rule].check(View(launch, self.host, self.model))


def _told(host: Host) -> str:
    known = {k: v for k, v in asdict(host).items() if v is not None and v is not False}
    return f"on a host with {known}"


def cards(count: int | None) -> Host:
    """A host of which only the number of GPUs is known."""
    return Host(cards_per_node=count)
