"""What a repository has of launches, and what its text says of each: decided without our reader."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SUFFIXES = (".sh", ".slurm", ".sbatch")
_FENCE = re.compile(r"^```(?:bash|shell|sh)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_EXAMPLES = re.compile(r"(?:^|/)(?:examples|python_scripts)/")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_SWIFT = r"(?:(?:swift|megatron) rlhf\b|swift[/.]cli[/.](?:_megatron[/.])?rlhf)"
_VERL = r"(?:\bverl[./](?:trainer[./]main_ppo|experimental[\w./]*main)|\brecipe[./]\w+[\w./]*main)"
# All words of a row stand somewhere in the text.
_TRAINS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("unsloth", (r"(?:from|import) unsloth", r"GRPOTrainer\(")),
    ("slime", (r"\btrain(?:_async)?\.py\b", r"--(?:rollout-num-gpus|rollout-batch-size)")),
    ("nemo-rl", (r"run_grpo\w*\.py|nemo_rl|run_\w+\.py --config",)),
    ("skyrl", (r"skyrl[\w.]*(?:entrypoints|main_\w+)|skyrl_train|skyrl\.train",)),
    ("areal", (r"-m areal\.|\bareal\.\w+ ",)),
    ("prime-rl", (r"\brl @|prime_rl|uv run rl\b",)),
    ("ms-swift", (_SWIFT, r"--rlhf_type[ =\\\n]+grpo")),
    ("openrlhf", (r"openrlhf[./]cli[./]train_ppo_ray", r"group_norm|dr_grpo")),
    ("verl", (_VERL, r"adv_estimator\s*=")),
    ("trl", (r"\btrl grpo\b|accelerate launch[\s\S]*grpo\w*\.py|GRPOTrainer\(",)),
)
SUPPORTED = ("ms-swift", "openrlhf", "verl", "trl")


@dataclass(frozen=True, slots=True)
class Script:
    """A launch as people find it: a file, or a block of a page, which is given as text."""

    repository: str
    name: str
    argument: str
    folder: Path
    text: str

    @property
    def starts(self) -> str:
        """The framework with which it starts GRPO, by its words; empty for anything else."""
        plain = "\n".join(_COMMENT.sub("", line) for line in self.text.splitlines())
        if re.search(r"adv_estimator\s*=", plain) and not _grpo_of_verl(plain):
            return ""
        return next(
            (name for name, words in _TRAINS if all(re.search(word, plain) for word in words)), ""
        )


def _grpo_of_verl(text: str) -> bool:
    """Whether the estimator is GRPO's, directly or by a variable whose value is."""
    said = re.findall(r"adv_estimator\s*=\s*[\"']?(\$?\{?[\w]+)", text)
    named = {name for name, _ in re.findall(r"(\w+)=[\"']?(?:\$\{\w+:-)?(grpo)\b", text)}
    return any(word == "grpo" or word.lstrip("${") in named for word in said)


def scripts_in(folder: Path) -> Iterator[Script]:
    """All of a checkout, by name."""
    name = folder.resolve().name.replace("+", "/")
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or ".git" in path.parts:
            continue
        shown = str(path.relative_to(folder))
        if path.suffix in _SUFFIXES:
            yield Script(name, shown, shown, folder, path.read_text("utf-8", "replace"))
        elif path.suffix == ".md":
            for number, block in enumerate(_FENCE.findall(path.read_text("utf-8", "replace")), 1):
                if _is_whole(block):
                    yield Script(name, f"{shown} block {number}", block, folder, block)
        elif path.suffix == ".py" and _EXAMPLES.search(shown):
            text = path.read_text("utf-8", "replace")
            if "GRPOTrainer(" in text:
                yield Script(name, shown, f"python {shown}", folder, text)
        elif path.suffix == ".ipynb":
            yield from _cells(name, path, shown, folder)


def _is_whole(block: str) -> bool:
    """Whether a block is no mere part of a launch: options alone, or with `...` for the rest."""
    first = block.lstrip()[:1]
    return first not in ("", "-") and not re.search(
        r"(?:^|\s)(?:\.\.\.|…)\s*\\?$", block, re.MULTILINE
    )


def _cells(name: str, path: Path, shown: str, folder: Path) -> Iterator[Script]:
    """The shell commands of a notebook: lines that begin with `!`, and cells of bash."""
    try:
        cells = json.loads(path.read_text("utf-8", "replace"))["cells"]
    except (ValueError, KeyError, TypeError):
        return
    for number, cell in enumerate(cells, 1):
        source = cell.get("source", "")
        text = source if isinstance(source, str) else "".join(source)
        bash = text.partition("\n")[2] if text.startswith(("%%bash", "%%sh", "%%shell")) else ""
        lines = re.findall(r"^!((?:[^\n]*\\\n)*[^\n]*)", text, re.MULTILINE)
        for block in filter(None, (bash, "\n".join(lines))):
            yield Script(name, f"{shown} cell {number}", block + "\n", folder, block)
