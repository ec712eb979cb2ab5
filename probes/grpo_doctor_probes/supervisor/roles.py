"""What a process that is no rank does for the job, by its command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Role:
    """`words`: `the rollout engine`. `serves`: ranks can't go on without it."""

    words: str
    serves: bool


# Process titles and modules of vLLM, SGLang, TRL and the bundled trainer; the first that fits.
_MARKS: tuple[tuple[str, Role], ...] = (
    ("vllm::worker", Role("a rollout worker", True)),
    ("vllm::enginecore", Role("the rollout engine", True)),
    ("sglang::", Role("the rollout engine", True)),
    ("grpo_doctor_trainer.serve", Role("the rollout server", True)),
    ("vllm-serve", Role("the rollout server", True)),
    ("vllm serve", Role("the rollout server", True)),
    ("vllm.entrypoints", Role("the rollout server", True)),
    ("sglang.launch_server", Role("the rollout server", True)),
    ("rewards.worker", Role("a reward process", True)),
    ("swift rollout", Role("the rollout server", True)),
    ("pt_data_worker", Role("a data-loading worker", True)),
)
_COMMAND_BYTES = 4096


def role_of(command: str) -> Role:
    """The role that a command line tells; a helper by its program's name where it tells none."""
    lowered = command.lower()
    for mark, role in _MARKS:
        if mark in lowered:
            return role
    program = Path(command.partition(" ")[0]).name
    return Role(f"a helper ({program[:32]})" if program else "a helper", False)


def command_of(pid: int, proc: Path = Path("/proc")) -> str:
    """The command line with blanks; empty when it can't be read."""
    try:
        data = (proc / str(pid) / "cmdline").read_bytes()[:_COMMAND_BYTES]
    except OSError:
        return ""
    return data.replace(b"\0", b" ").decode("utf-8", "replace").strip()
