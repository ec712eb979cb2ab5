"""How a run's own setting is changed: by a flag, in DeepSpeed's JSON, or at the vLLM server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.knobs import deepspeed

# Where a server's options go: the table, whose version counts, and how the program is called.
_SERVERS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "bundled": (("bundled server", "bundled", "`python -m grpo_doctor_trainer.serve`"),),
    "ms-swift": (("ms-swift server", "ms-swift", "`swift rollout`"),),
    "trl": (
        ("trl server", "trl", "`trl vllm-serve`"),
        ("vllm", "vllm", "`vllm serve`"),
    ),
}
_FILES = (".json", ".jsonc")


@dataclass(frozen=True, slots=True)
class Instruction:
    """How to set a knob.

    Attributes:
        sentence: all of it in one line: ``for `swift rollout`: --x 1``.
        text: what of it to type.
        where: if not in the job's own command: ``for `swift rollout```, `in ds.json`.
    """

    sentence: str
    text: str
    where: str = ""


def instruct(
    framework: str,
    versions: Mapping[str, str | None],
    settings: Mapping[str, Any],
    knob: str,
    value: Any,
) -> Instruction | None:
    """The setting as this run takes it: `--x false`, or words that say where to set what.

    Args:
        framework: `ms-swift`, ...
        versions: of the framework, under its own name, and of `vllm` and `deepspeed`.
        settings: the run's knobs. A DeepSpeed preset and vLLM's mode decide where settings go.
        knob: canonical name.
        value: what to set it to.
    """
    version = versions.get(framework)
    if settings.get("vllm.mode") == "server":
        for table, owner, name in _SERVERS.get(framework, ()):
            text = knobs.spell(table, versions.get(owner), knob, value)
            if text is not None:
                return Instruction(f"for {name}: {text}", text, f"for {name}")
    flag = knobs.spell(framework, version, knob, value)
    if flag is not None and _is_one_key_of_many(framework, knob):
        merged = "with the keys it has already"
        return Instruction(f"{flag} ({merged})", flag, merged)
    if flag is not None:
        return Instruction(flag, flag)
    if not _reads_deepspeed(framework):
        return None
    now = deepspeed.preset_in_force(framework, settings)
    return _in_deepspeed(framework, versions, now, knob, value)


def _is_one_key_of_many(framework: str, knob: str) -> bool:
    """Whether the option takes JSON, which a second one on the command line would replace."""
    rows = knobs.FRAMEWORKS.get(framework, ())
    return any(row.knob == knob and row.inside is not None for row in rows)


def _reads_deepspeed(framework: str) -> bool:
    return any(row.knob == "deepspeed.preset" for row in knobs.FRAMEWORKS.get(framework, ()))


def _in_deepspeed(
    framework: str, versions: Mapping[str, str | None], now: Any, knob: str, value: Any
) -> Instruction | None:
    if (preset := deepspeed.preset_with(now, knob, value)) is not None:
        flag = knobs.spell(framework, versions.get(framework), "deepspeed.preset", preset)
        return None if flag is None else Instruction(flag, flag)
    # An unknown DeepSpeed is judged as the newest that was read: its paths have not moved.
    text = knobs.spell("deepspeed", versions.get("deepspeed"), knob, value)
    if text is None:
        return None
    file = now if str(now).endswith(_FILES) else "the DeepSpeed configuration"
    return Instruction(f"set {text} in {file}", text, f"in {file}")
