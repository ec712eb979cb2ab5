"""What a launch is: a command of a run, and its settings by canonical name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from grpo_doctor import knobs
from grpo_doctor.knobs import KNOBS
from grpo_doctor.knobs.model import version_of
from grpo_doctor.knobs.provenance import Provenance, Setting, Settings

Framework = Literal[
    "bundled", "ms-swift", "trl", "verl", "openrlhf", "vllm", "sglang",
    "slime", "miles", "nemo-rl", "skyrl", "areal", "prime-rl", "unsloth", "easyr1", "unknown",
]  # fmt: skip
"""As in `grpo_doctor.knobs`; `bundled` is our own trainer. Those from `slime` on are recognized and
nothing more; `unknown` is a program of the user's own, or a script that is not here."""
SUPPORTED: frozenset[Framework] = frozenset(
    {"bundled", "ms-swift", "trl", "verl", "openrlhf", "vllm", "sglang"}
)
"""Frameworks whose options are known: of other launches only the processes are reported."""
_NAMES: Mapping[Framework, str] = {
    "nemo-rl": "NeMo RL", "skyrl": "SkyRL", "areal": "AReaL", "unsloth": "Unsloth",
    "easyr1": "EasyR1",
}  # fmt: skip
"""Where that is another word."""
Trainer = Literal[
    "grpo", "rloo", "reinforce", "ppo", "gkd", "sft", "pt", "dpo", "kto", "orpo", "cpo", "simpo",
    "rm", "online-dpo", "own", "generation", "none", "unknown",
]  # fmt: skip
"""What a command trains: `grpo` where advantages come from a group of completions; `reinforce` for
other
    methods without a critic; `rm` for a reward model; `own` for the user's own trainer class;
    `none` for a server."""
Role = Literal["train", "rollout server"]
FROM_ENVIRONMENT = {"data.max_pixels": "MAX_PIXELS"}
"""What ms-swift, and the models that it loads, take from the environment."""
_ORDER = {knob.name: position for position, knob in enumerate(KNOBS)}


@dataclass(frozen=True, slots=True)
class Source:
    """Where something was set: an argument of the command line, or a line of a file.

    `text` is how it stands there, `--train_type lora`. `argument` counts from 0; `line` from 1.
    """

    text: str
    argument: int | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.file is None:
            return "the command line"
        return f"{self.file}:{self.line}" if self.line else self.file


ProblemKind = Literal[
    "renamed-flag", "removed-flag", "newer-flag", "unknown-flag", "missing-value", "bad-value",
    "contradiction", "broken-line", "unset-variable", "unreadable",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of a launch that can't be understood, or that this version refuses.

    `ends` says whether the framework refuses to start because of it.
    """

    kind: ProblemKind
    text: str
    fix: str
    source: Source | None = None
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Launch:
    """One command of a run.

    `settings` holds what was set, or follows from it (a DeepSpeed preset), by canonical name; what
    holds elsewhere is `value`. `options` has each option by the framework's own name, known or not.
    """

    framework: Framework
    version: str | None
    """None: unknown; the newest version that was read is used."""
    role: Role
    versions: Mapping[str, str] = field(default_factory=dict)
    """The given versions of all packages, `vllm` and `transformers` among them."""
    subcommand: str = ""
    """`rlhf`, `grpo`, `main_ppo`: which of the framework's commands."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, Source] = field(default_factory=dict)
    """Of each of `settings`."""
    copied: frozenset[str] = frozenset()
    """All keys that the copy of verl in its folder has, which may be a fork; empty: no copy."""
    open: Mapping[str, Problem] = field(default_factory=dict)
    """Settings whose value is in a variable that is not set here, each with the sentence that
    explains it: no default holds for them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    option_sources: Mapping[str, Source] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """What the command sets for itself and what its script exports, not the caller's own."""
    not_exported: Mapping[str, Source] = field(default_factory=dict)
    """What its script sets of what a job reads, but neither exports nor uses itself."""
    processes_per_node: int = 1
    """Training processes on each host; 0: one for each GPU that is visible."""
    nodes: int = 1
    processes_known: bool = True
    """False where only the place of the start says how many processes and hosts there are."""
    complete: bool = True
    """False where a configuration of the user's own, or a script, may say more."""
    gpu_ids: tuple[str, ...] | None = None
    """CUDA_VISIBLE_DEVICES, as given; None: all GPUs."""
    submitted: bool = False
    """Whether it runs on a Ray cluster of unknown size."""
    launcher: str = ""
    """What starts the processes: `torchrun`, `accelerate`, `deepspeed`, `ray`, `trl` for TRL's own
    command, which calls accelerate; empty for none."""
    algorithm: str = "grpo"
    """The framework's own name for it, `group_norm` or `dr_grpo`."""
    trainer: Trainer = "unknown"
    """What kind of training it is, whatever the framework calls it."""
    model: str | None = None
    """The trained, or served, model: a name of the hub, or a folder."""
    backend: Literal["", "megatron"] = ""
    """`megatron` for `megatron rlhf`."""
    folder: Path = Path()
    """Where the command is started: relative paths begin there."""
    assumptions: tuple[str, ...] = ()
    """What is assumed because it was not set, and how to set it; sentences."""
    problems: tuple[Problem, ...] = ()
    companions: tuple[Launch, ...] = field(default=())
    """Other commands of the same run: the server of a trainer."""
    is_placed: bool = False
    """Whether another program chooses its host: `srun`, `ssh` or Ray."""
    too_old: str | None = None
    """A sentence where its version is older than those that are known."""
    oldest: Launch | None = None
    """The reading of the oldest version that takes the same options, if none is given and the
    newest does not take them."""

    @property
    def visible_gpus(self) -> int | None:
        """GPUs that the command is given on each host; None: all there are."""
        return len(self.gpu_ids) if self.gpu_ids is not None else None

    def engine_has_own_card(self, started: int, cards: int) -> bool:
        """Return whether this version, of ms-swift before 3.5 or TRL before 0.16, puts vLLM on a
        GPU that no process trains on. No later TRL takes `vllm_device`.

        Args:
            started: training processes on each host.
            cards: GPUs that they see there.
        """
        version, until = version_of(self.version), {"ms-swift": (3, 5), "trl": (0, 16)}
        old = version is not None and version < until.get(self.framework, ())
        old = old or (self.framework == "trl" and "vllm_device" in self.options)
        return old and started < cards and bool(self.value("vllm.use"))

    @property
    def is_supported(self) -> bool:
        """Whether its framework's options are known; otherwise no setting is shown or judged."""
        return self.framework in SUPPORTED

    @property
    def outside(self) -> str | None:
        """Why its memory and settings are unknown; None for a known framework."""
        if self.is_supported:
            return self.too_old
        if self.framework != "unknown":
            name = _NAMES.get(self.framework, self.framework)
            return f"it trains with {name}, which is not supported"
        missing = next((p.text for p in self.problems if p.kind == "unreadable"), None)
        return missing or f"{self.subcommand} belongs to no known framework"

    @property
    def processes(self) -> int:
        """Training processes over all hosts; 0: one for each GPU that is visible."""
        return self.processes_per_node * self.nodes

    def sets(self, knob: str) -> bool:
        """Return whether the launch itself sets this setting."""
        return knob in self.settings

    def setting(self, knob: str) -> Setting:
        """What holds for a setting: given here, else this version's default, marked as such."""
        return Settings(self.table, self.version, self.settings, Provenance.GIVEN)[knob]

    def value(self, knob: str, otherwise: Any = None) -> Any:
        """Return what holds: said here, else this version's default, else `otherwise`."""
        if knob in self.open:
            return otherwise
        value = self.setting(knob).value
        return otherwise if value is None and knob not in self.settings else value

    @property
    def table(self) -> str:
        """The table of `grpo_doctor.knobs` that spells this command's options."""
        if self.role == "rollout server" and self.framework in ("bundled", "ms-swift", "trl"):
            return f"{self.framework} server"
        return f"{self.framework} megatron" if self.backend == "megatron" else self.framework

    @property
    def in_python(self) -> bool:
        """Whether a script has the settings, `GRPOConfig(...)`, and the command has none."""
        files = {source.file or "" for source in self.option_sources.values()}
        return bool(files) and all(file.endswith(".py") for file in files)

    def spell(self, knob: str, value: Any) -> str | None:
        """Return the setting as this command or its script takes it; None where neither does."""
        if self.copied:
            rows = [r for r in knobs.TABLES[self.table] if r.knob == knob and r.key in self.copied]
            return knobs.written(self.table, rows[-1], value) if rows else None
        syntax: Literal["python"] | None = "python" if self.in_python else None
        return knobs.spell(self.table, self.version, knob, value, syntax)

    def said(self, knob: str, value: Any) -> str | None:
        """Return the same, or the variable that ms-swift takes it from."""
        if self.framework == "ms-swift" and knob in FROM_ENVIRONMENT:
            return f"{FROM_ENVIRONMENT[knob]}={value}"
        return self.spell(knob, value)

    @property
    def server(self) -> Launch | None:
        """The command among the companions that serves this run's rollouts."""
        return next(
            (companion for companion in self.companions if companion.role == "rollout server"), None
        )


def ordered(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in the order of their table."""
    return dict(sorted(settings.items(), key=lambda pair: _ORDER.get(pair[0], len(_ORDER))))
