"""The document that `check --json` prints.

`SCHEMA` changes when a member changes its meaning or goes; new members do not change it.
"""

from __future__ import annotations

from typing import Any

from grpo_doctor_reports.schema.part import Block, Name, Part, Prose

SCHEMA = 2


class Said(Part, frozen=True):
    """The source of a value: an argument, counted from 0, or a line of a file."""

    text: Block = ""
    argument: int | None = None
    file: Name | None = None
    line: int | None = None


class LaunchChecked(Part, frozen=True):
    """A command. `settings` has what it says, by canonical name (docs/knobs.md)."""

    framework: Name = ""
    version: Name | None = None
    role: Name = ""
    command: Name = ""
    model: Name | None = None
    processes_per_node: int | None = None
    nodes: int = 1
    settings: dict[Name, Any] = {}
    said: dict[Name, Said] = {}


class FlawSeen(Part, frozen=True):
    """Something wrong. `id` is a rule's, or the kind of what the command's parser refuses.

    `ends`: the job refuses to start, or dies of it. `command`: `train`, or `server` for another
    command of the run.
    """

    id: Name = ""
    slug: Name = ""
    severity: Name = ""
    ends: bool = False
    command: Name = "train"
    headline: Prose = ""
    evidence: list[Prose] = []
    fixes: list[Block] = []
    said: Said | None = None


class Entry(Part, frozen=True):
    """One entry of a memory estimate: bytes, their formula, and the setting they depend on."""

    name: Name = ""
    bytes: int = 0
    formula: Prose = ""
    source: Prose = ""
    knob: Name | None = None


class PhaseMemory(Part, frozen=True):
    """A phase's worst moment: from the least that it needs to what it takes on a card with room."""

    name: Name = ""
    low_bytes: int = 0
    bytes: int = 0
    high_bytes: int = 0
    entries: list[Entry] = []


class PoolMemory(Part, frozen=True):
    """One role on its cards, or a host's memory. `refusals`: why it would not even start."""

    role: Name = ""
    state: Name = ""
    capacity_bytes: int = 0
    peak_phase: Name = ""
    peak_rank: Name = ""
    refusals: list[Prose] = []
    phases: list[PhaseMemory] = []


class Memory(Part, frozen=True):
    """The estimate for each role; `worst` is the role that decides."""

    state: Name = ""
    worst: Name = ""
    pools: list[PoolMemory] = []


class SettingToChange(Part, frozen=True):
    """A setting to change, in the syntax of this framework and version, and its cost."""

    knob: Name = ""
    value: Any = None
    spelling: Block = ""
    cost: Prose = ""


class ChangeOfLaunch(Part, frozen=True):
    """Settings to change together; `saved_bytes` off the peak, negative where more is used."""

    settings: list[SettingToChange] = []
    saved_bytes: int = 0


class Solved(Part, frozen=True):
    """The largest value of a setting that still fits; null where none does."""

    knob: Name = ""
    value: float | None = None
    spelling: Block | None = None


class CheckDocument(Part, frozen=True):
    """The whole document.

    `verdict`: `fits` or `oom` where the whole interval is on that side of the capacity, `tight`
    where the capacity is inside; `invalid` where the job ends at startup; `not-modelled` where
    check knows nothing of this kind of launch; `unknown` where a part could not be read, or memory
    was not estimated, for the reason in `not_estimated`. `fix` makes it fit; `relief` are single
    changes, the largest first; `room` is what a launch that fits could afford.
    """

    schema: int = SCHEMA
    verdict: Name = ""
    headline: Prose = ""
    launch: LaunchChecked = LaunchChecked()
    companions: list[LaunchChecked] = []
    gpus: Name | None = None
    flaws: list[FlawSeen] = []
    memory: Memory | None = None
    not_estimated: Prose | None = None
    fix: ChangeOfLaunch | None = None
    relief: list[ChangeOfLaunch] = []
    room: list[ChangeOfLaunch] = []
    solved: Solved | None = None
    assumptions: list[Prose] = []
