"""How a setting is changed: by a flag, in Python, in DeepSpeed's JSON, or at the vLLM server."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grpo_doctor import knobs
from grpo_doctor.knobs import deepspeed

# Where a server's options go: the table, whose version counts, and how the program is called.
_SERVERS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "bundled": (("vllm", "vllm", "`vllm serve`"),),
    "ms-swift": (("ms-swift server", "ms-swift", "`swift rollout`"),),
    "trl": (("trl server", "trl", "`trl vllm-serve`"), ("vllm", "vllm", "`vllm serve`")),
}
_FILES = (".json", ".jsonc")
_SWITCHES_OF_VLLM = ("vllm.use", "vllm.mode")
Form = Literal["flag", "python argument", "config file", "words"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run's own settings are written.

    Attributes:
        form: `flag` where its command takes options, `python argument` where its script does not.
        where: if not in the job's own command: `in train.sh`, `in GRPOConfig(...), train.py:42`.
        given: the options that its command has, which it therefore takes.
    """

    form: Form = "flag"
    where: str = ""
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Instruction:
    """How to change a setting.

    Attributes:
        sentence: all of it in one line: ``for `swift rollout`: --x 1``.
        text: what of it to type.
        where: if not in the job's own command: ``for `swift rollout```, `in ds.json`.
        form: what `text` is; `words` where nothing can be typed in one place.
    """

    sentence: str
    text: str
    where: str = ""
    form: Form = "flag"


def joined(instructions: Sequence[Instruction]) -> Instruction:
    """Several settings as one instruction: what goes to several places can't be typed at one."""
    first = instructions[0]
    if len({(each.where, each.form) for each in instructions}) > 1:
        return Instruction(" and ".join(each.sentence for each in instructions), "", form="words")
    between = ", " if first.form in ("python argument", "config file") else " "
    text = between.join(each.text for each in instructions)
    return Instruction(first.sentence.replace(first.text, text, 1), text, first.where, first.form)


@dataclass(frozen=True, slots=True)
class Job:
    """What decides how a setting is changed.

    Attributes:
        framework: `ms-swift`, ...
        versions: of the framework, under its own name, and of `vllm` and `deepspeed`.
        settings: by canonical name. A DeepSpeed preset and vLLM's mode decide where settings go.
        place: where the job's own settings are written.
    """

    framework: str
    versions: Mapping[str, str | None]
    settings: Mapping[str, Any]
    place: Place = Place()

    @property
    def version(self) -> str | None:
        """The framework's."""
        return self.versions.get(self.framework)

    @property
    def table(self) -> str:
        """The table of `knobs` that has its settings."""
        return knobs.table_of(self.framework, self.settings)

    @property
    def has_deepspeed(self) -> bool:
        """Whether any of DeepSpeed's settings is in force."""
        names = ("deepspeed.preset", *(row.knob for row in knobs.TABLES["deepspeed"]))
        return any(self.settings.get(name) for name in names)


def instruct(job: Job, knob: str, value: Any) -> Instruction | None:
    """Return the setting as this job takes it: `--x false`, or words that say where to set what.

    None where it has no such setting, as of vLLM or DeepSpeed where it uses neither.
    """
    of_engine = knob.startswith("vllm.") and knob not in _SWITCHES_OF_VLLM
    if of_engine and job.settings.get("vllm.use") is False:
        return None
    if job.settings.get("vllm.mode") == "server":
        for table, owner, name in _SERVERS.get(job.framework, ()):
            text = knobs.spell(table, job.versions.get(owner), knob, value)
            if text is not None:
                return Instruction(f"for {name}: {text}", text, f"for {name}")
    return _own(job, knob, value) or _in_deepspeed(job, knob, value)


def _own(job: Job, knob: str, value: Any) -> Instruction | None:
    """As the trainer itself takes it, at its place."""
    text, where, form = (
        knobs.spell(job.table, job.version, knob, value), job.place.where, job.place.form,
    )  # fmt: skip
    if text is None:
        return None
    if form == "python argument":
        if job.place.given.issuperset(re.findall(r"--([\w.-]+)", text)):
            where, form = "", "flag"
        else:
            text = knobs.spell(job.table, job.version, knob, value, "python") or text
    sentence = f"{where}: {text}" if where else text
    rows = knobs.FRAMEWORKS.get(job.framework, ())
    if any(row.knob == knob and row.inside is not None for row in rows):
        # The option takes JSON, which a second one on the command line would replace.
        merged = "in addition to its existing keys"
        sentence, where = f"{sentence} ({merged})", f"{where}, {merged}" if where else merged
    return Instruction(sentence, text, where, form)


def _in_deepspeed(job: Job, knob: str, value: Any) -> Instruction | None:
    rows = knobs.FRAMEWORKS.get(job.framework, ())
    if not any(row.knob == "deepspeed.preset" for row in rows):
        return None
    now = deepspeed.preset_in_force(job.framework, job.settings)
    if (preset := deepspeed.preset_with(now, knob, value)) is not None:
        return _own(job, "deepspeed.preset", preset)
    # An unknown DeepSpeed is judged as the newest that was read: its paths have not moved.
    text = knobs.spell("deepspeed", job.versions.get("deepspeed"), knob, value)
    if text is None or not job.has_deepspeed:
        return None
    file = now if str(now).endswith(_FILES) else "the DeepSpeed configuration"
    return Instruction(f"set {text} in {file}", text, f"in {file}", "config file")
