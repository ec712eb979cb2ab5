"""Twenty runs, how each was started, and what is true of it because it was started so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

State = Literal["finished", "failed", "interrupted", "killed", "hung"]


@dataclass(frozen=True)
class Truth:
    """What its command made of a run; the product is never asked.

    `framework` is empty where the job uses none. `layout` holds the words that may name how
    the run was spread. `faults` are the rules that the injected fault makes true, `costliest`
    those of which one has to be the headline; `flags` says whether the command takes the
    framework's flags. `settings` are values that the command gives, `model` its folder.
    """

    framework: str
    trained: Literal["full", "lora", ""]
    layout: tuple[str, ...]
    ranks: int
    state: State
    steps: int | None = None
    engine: bool = False
    faults: frozenset[str] = frozenset()
    flags: bool = True
    says: tuple[str, ...] = ()
    model: str = ""
    costliest: frozenset[str] = frozenset()
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A run: `words` follow `grpo-doctor run [flags] --`.

    `{jobs}` stands for the folder of jobs/, `{model}`, `{data}` and `{folder}` for what the
    recorder makes. `python` names an environment of tests.frameworks. `kill` is who gets which
    signal, in which step.
    """

    name: str
    truth: Truth
    words: tuple[str, ...]
    flags: tuple[str, ...] = ()
    python: str = ""
    kill: tuple[Literal["job", "rank 1"], str, int] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def _torchrun(ranks: int, script: str, *arguments: str) -> tuple[str, ...]:
    return (
        "torchrun", "--standalone", f"--nproc_per_node={ranks}", f"{{jobs}}/{script}", *arguments,
    )  # fmt: skip


def _bundled(reward: str, *flags: str) -> tuple[str, ...]:
    return ("--reward_funcs", f"{{jobs}}/rewards.py:{reward}", *flags)


_ZERO2 = ("ZeRO-2",)
_DATA = ("data parallel",)
_SLOW_REWARD = frozenset({"GD033"})
_FULL = {"train.type": "full", "train.dtype": "float32"}
_LORA = {"train.type": "lora", "train.dtype": "float32"}
CASES = (
    Case(
        "bundled-slow-reward",
        Truth(
            "bundled",
            "full",
            _ZERO2,
            2,
            "finished",
            20,
            faults=frozenset({"GD004", "GD011"}),
            costliest=frozenset({"GD004", "GD011"}),
            settings=_FULL | {"offload.optimizer": True, "offload.gc_collect": True},
        ),
        _bundled(
            "slow",
            "--offload_optimizer",
            "true",
            "--gc_collect_after_offload",
            "true",
            "--max_steps",
            "20",
        ),
    ),
    Case(
        "bundled-lora",
        Truth(
            "bundled",
            "lora",
            _ZERO2,
            1,
            "finished",
            12,
            settings=_LORA | {"deepspeed.stage": 2, "train.max_steps": 12},
        ),
        ("--train_type", "lora", "--max_steps", "12"),
        ("--nproc", "1"),
    ),
    Case(
        "bundled-zero3",
        Truth(
            "bundled",
            "full",
            ("ZeRO-3",),
            4,
            "finished",
            8,
            costliest=frozenset({"GD039"}),
            settings=_FULL | {"deepspeed.stage": 3, "vllm.use": False},
        ),
        ("--deepspeed", "zero3", "--max_steps", "8"),
        ("--nproc", "4"),
    ),
    Case(
        "bundled-cut",
        Truth(
            "bundled",
            "full",
            _ZERO2,
            2,
            "interrupted",
            faults=frozenset({"GD004"}),
            costliest=frozenset({"GD004"}),
        ),
        _bundled("slow", "--max_steps", "200"),
        kill=("job", "SIGINT", 9),
    ),
    Case(
        "bundled-rank-killed",
        Truth("bundled", "full", _ZERO2, 2, "failed", says=("rank 1", "SIGKILL")),
        _bundled("slow", "--max_steps", "200"),
        kill=("rank 1", "SIGKILL", 6),
    ),
    Case(
        "bundled-reward-raises",
        Truth("bundled", "full", _ZERO2, 2, "failed", says=("KeyError",)),
        _bundled("raising", "--max_steps", "20"),
    ),
    Case(
        "bundled-hung",
        Truth("bundled", "full", _ZERO2, 2, "hung"),
        _bundled("hanging", "--max_steps", "20"),
        ("--hang-after", "6", "--on-hang", "stop"),
    ),
    Case(
        "plain-finished",
        Truth("", "", (), 2, "finished"),
        _torchrun(2, "plain.py", "12"),
    ),
    Case(
        "plain-raised",
        Truth("", "", (), 2, "failed", says=("ValueError", "rank 1")),
        _torchrun(2, "plain.py", "12", "1", "5"),
    ),
    Case(
        "marked-cut",
        Truth("", "", (), 1, "interrupted"),
        ("python", "{jobs}/marked.py", "400"),
        kill=("job", "SIGINT", 22),
    ),
    Case(
        "marked-8",
        Truth("", "", (), 8, "finished", 25),
        _torchrun(8, "marked.py", "25", "5", "0.08"),
    ),
    Case(
        "marked-64",
        Truth("", "", (), 64, "finished", 10),
        _torchrun(64, "marked.py", "10"),
    ),
    Case(
        "trl-full",
        Truth(
            "trl",
            "full",
            _DATA,
            2,
            "finished",
            10,
            flags=False,
            model="model",
            costliest=_SLOW_REWARD,
            settings={"train.max_steps": 10},
        ),
        _torchrun(2, "trl_job.py", "{model}", "{folder}", "10"),
    ),
    Case(
        "trl-lora",
        Truth(
            "trl",
            "lora",
            (),
            1,
            "finished",
            10,
            flags=False,
            model="model",
            costliest=_SLOW_REWARD,
        ),
        ("python", "{jobs}/trl_job.py", "{model}", "{folder}", "10", "lora"),
    ),
    Case(
        "trl-raises",
        Truth(
            "trl", "full", _DATA, 2, "failed", flags=False, says=("RuntimeError",), model="model"
        ),
        _torchrun(2, "trl_job.py", "{model}", "{folder}", "10", "raise"),
    ),
    Case(
        "swift-lora",
        Truth(
            "ms-swift",
            "lora",
            _DATA,
            2,
            "finished",
            6,
            model="model",
            settings=_LORA | {"train.max_steps": 6, "vllm.use": False},
        ),
        ("swift", "--max_steps", "6"),
        python="swift",
    ),
    Case(
        "swift-full",
        Truth(
            "ms-swift",
            "full",
            _DATA,
            2,
            "finished",
            6,
            model="model",
            costliest=_SLOW_REWARD,
            settings=_FULL,
        ),
        ("swift", "--max_steps", "6", "--tuner_type", "full"),
        python="swift",
    ),
    Case(
        "swift-cut",
        Truth("ms-swift", "lora", _DATA, 2, "interrupted", model="model", settings=_LORA),
        ("swift", "--max_steps", "500"),
        python="swift",
        kill=("job", "SIGINT", 5),
    ),
    Case(
        "verl-fsdp",
        Truth(
            "verl",
            "full",
            ("FSDP2",),
            2,
            "finished",
            5,
            engine=True,
            model="model",
            settings={"train.lora_rank": 0, "train.max_steps": 5, "train.dtype": "float32"},
        ),
        ("verl", "trainer.total_training_steps=5"),
        python="verl",
    ),
    Case(
        "openrlhf-deepspeed",
        Truth(
            "openrlhf",
            "full",
            _ZERO2,
            2,
            "finished",
            engine=True,
            model="model",
            settings={"deepspeed.stage": 2},
        ),
        ("openrlhf", "--data.max_samples", "24", "--train.num_episodes", "1"),
        python="openrlhf",
    ),
)
