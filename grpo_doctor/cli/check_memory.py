"""The memory part of `check`: the estimate for a launch, and which of its flags to change."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo_doctor import knobs
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.knobs.advice import Job, Place, instruct
from grpo_doctor.knobs.deepspeed import preset_in_force, preset_with
from grpo_doctor.launches import Launch
from grpo_doctor.launches.canonical import ACCELERATE_KEYS
from grpo_doctor.launches.raw_settings import FOLDER_OF_TRL
from grpo_doctor_reports.schema import check as parts

if TYPE_CHECKING:
    from grpo_doctor.memory import Change, Edit, Ledger, Machine, Pool

_ZERO_3 = 3
_MOST_RELIEF = 4
_MOST_ROOM = 3


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of each host."""

    count: int
    name: str
    card_bytes: int

    def __str__(self) -> str:
        return f"{self.count}x{self.name}"


@dataclass(frozen=True, slots=True)
class Request:
    """The machine that the user named, and what else was asked."""

    gpus: Gpus | None
    is_here: bool
    rollout_gpus: Gpus | None = None
    nodes: int | None = None
    host_bytes: int | None = None
    solve: str | None = None


class MemoryCheck:
    """The memory estimate of a launch, or the reason why there is none."""

    def __init__(self, launch: Launch, request: Request, unknown: str | None) -> None:
        self.launch = launch
        self.oldest = MemoryCheck(launch.oldest, request, unknown) if launch.oldest else None
        from grpo_doctor.memory.domain import not_modelled  # noqa: PLC0415

        self.ledger: Ledger | None = None
        self.reason: str | None = None
        self.assumptions: tuple[str, ...] = ()
        self.not_modelled = not_modelled(launch)
        gpus = request.gpus
        if self.not_modelled is not None:
            self.reason = f"memory not modeled: {self.not_modelled}"
            return
        if unknown is not None or gpus is None or not gpus.card_bytes:
            unknown = unknown or "pass the GPUs, such as --gpus 8xA100-80G"
            self.reason = f"memory not estimated: {unknown}"
            return
        from grpo_doctor.memory import estimate, setup_of  # noqa: PLC0415

        try:
            machine = _machine(launch, request, gpus)
            self.ledger, self.job = estimate(launch, machine), setup_of(launch, machine)
            self.assumptions = self.ledger.assumptions
        except (GrpoDoctorError, ZeroDivisionError, ValueError) as problem:
            self.reason = f"memory not estimated: {problem}"

    @property
    def state(self) -> str:
        """The verdict on memory alone."""
        if self.ledger is None:
            return "unknown" if self.not_modelled is None else "not-modelled"
        return self.ledger.state

    @property
    def part(self) -> parts.Memory | None:
        """The memory estimate for the document."""
        if self.ledger is None:
            return None
        pools = [*self.ledger.pools, *((self.ledger.host,) if self.ledger.host else ())]
        return parts.Memory(
            state=self.ledger.state,
            worst=self.ledger.worst.role,
            pools=[_pool(pool) for pool in pools],
        )

    @property
    def fix(self) -> parts.ChangeOfLaunch | None:
        """The smallest change that makes it fit."""
        from grpo_doctor.memory import fixes  # noqa: PLC0415

        if self.ledger is None or self.job.trainer is None or self.state == "fits":
            return None
        change = fixes(self.job.trainer, self.job.server, self._allowed())
        return self._change(change) if change is not None else None

    @property
    def relief(self) -> list[parts.ChangeOfLaunch]:
        """Single changes that lower the peak, where it does not fit."""
        from grpo_doctor.memory import relief  # noqa: PLC0415

        return [] if self.state == "fits" else self._changes(relief, _MOST_RELIEF)

    @property
    def room(self) -> list[parts.ChangeOfLaunch]:
        """What a launch that fits could afford."""
        from grpo_doctor.memory import room  # noqa: PLC0415

        return self._changes(room, _MOST_ROOM) if self.state == "fits" else []

    def _changes(
        self, search: Callable[..., Sequence[Change]], most: int
    ) -> list[parts.ChangeOfLaunch]:
        if self.ledger is None or self.job.trainer is None:
            return []
        changes = search(self.job.trainer, self.job.server, self._allowed())
        return [self._change(change) for change in changes[:most]]

    def solved(self, knob: str) -> parts.Solved:
        """Return the largest value of a setting that still fits."""
        from grpo_doctor.memory import solve  # noqa: PLC0415

        if self.ledger is None or self.job.trainer is None:
            return parts.Solved(knob=knob)
        keys = {row.key: row.knob for row in knobs.TABLES[self.launch.table]}
        name = keys.get(knob.lstrip("-").replace("-", "_"), knob)
        value = solve(self.job.trainer, name, self.job.server)
        spelling = self.launch.spell(name, value) if value is not None else None
        return parts.Solved(knob=name, value=value, spelling=spelling)

    def assumed(self) -> Iterator[str]:
        """Yield the assumptions; for prompts of unknown length also the longest that fit."""
        from grpo_doctor.memory import prompts_assumed, solve  # noqa: PLC0415

        trainer = self.job.trainer if self.state == "fits" else None
        unlimited = prompts_assumed(self.launch, trainer) if trainer is not None else None
        for sentence in self.assumptions:
            if trainer is None or sentence != unlimited:
                yield sentence
                continue
            longest = solve(trainer, "data.max_length", self.job.server) or 0
            longest = min(longest, trainer.model.max_positions or longest)
            yield f"{sentence}; it fits up to {longest:g} tokens" if longest else sentence

    def _allowed(self) -> Callable[[Edit], bool]:
        raised = {**self.launch.settings, "deepspeed.stage": _ZERO_3}
        return lambda edit: self._spelled(edit.knob, edit.value, raised) is not None

    def _spelled(self, knob: str, value: Any, settings: Any) -> str | None:
        versions = {**self.launch.versions, self.launch.framework: self.launch.version}
        if self.launch.framework == "verl" or self.launch.backend == "megatron":
            text = self.launch.spell(knob, value)
            name, per_gpu, _ = text.partition("_per_gpu=") if text else ("", "", "")
            refused = per_gpu and name in self.launch.options  # by verl, next to each other
            return f"{text} in place of {name}" if refused else text
        if knob == "deepspeed.offload_param" and settings.get("deepspeed.stage") != _ZERO_3:
            return None
        if (option := self._deepspeed_of_trl(knob, value)) is not None:
            return option
        place = Place("python argument" if self.launch.in_python else "flag")
        how = instruct(Job(self.launch.framework, versions, settings, place), knob, value)
        return how.sentence if how else None

    def _deepspeed_of_trl(self, knob: str, value: Any) -> str | None:
        """Return how a job of TRL takes a setting of DeepSpeed; None if its JSON file has it."""
        launch, key = self.launch, ACCELERATE_KEYS.get(knob)
        is_by_file = launch.framework != "trl" or "deepspeed.preset" in launch.settings
        if key is None or is_by_file:
            return None
        source = launch.sources.get("deepspeed.stage")
        if launch.launcher not in ("trl", "accelerate"):
            option = f'--deepspeed FILE, with "zero_optimization.stage": {value}'
            return option if source is None and knob == "deepspeed.stage" else None
        by_name = source is None or str(source).startswith(FOLDER_OF_TRL)
        if launch.launcher == "trl" and by_name and knob == "deepspeed.stage":
            return f"--accelerate_config zero{value}"
        text = value if knob == "deepspeed.stage" else "cpu" if value else "none"
        if source is not None and source.file is not None:
            return f"set {key}: {text} in {source.file}"
        return f"accelerate launch {'' if source else '--use_deepspeed '}--{key} {text}"

    def _cost(self, edit: Edit) -> str:
        """What a change costs, in the framework's words; some count accumulation themselves."""
        flag = self.launch.spell(edit.raises, 2) if edit.raises else None
        return f"{edit.cost}; raise {re.split('[ =]', flag)[0]} in step" if flag else edit.cost

    def _change(self, change: Change) -> parts.ChangeOfLaunch:
        settings = dict(self.launch.settings)
        for edit in change.edits:
            settings |= _after(self.launch.framework, settings, edit)
        return parts.ChangeOfLaunch(
            settings=[
                parts.SettingToChange(
                    knob=edit.knob,
                    value=edit.value,
                    spelling=self._spelled(edit.knob, edit.value, settings)
                    or f"{edit.knob}={edit.value}",
                    cost=self._cost(edit),
                )
                for edit in change.edits
            ],
            saved_bytes=change.saved_bytes,
        )


def _after(framework: str, settings: Mapping[str, Any], edit: Edit) -> dict[str, Any]:
    """Return what an edit sets: of DeepSpeed's, the preset that it leads to as well."""
    preset = preset_with(preset_in_force(framework, settings), edit.knob, edit.value)
    values = {edit.knob: edit.value}
    return {**values, "deepspeed.preset": preset} if preset is not None else values


def _machine(launch: Launch, request: Request, gpus: Gpus) -> Machine:
    from grpo_doctor.memory import Machine  # noqa: PLC0415

    servers = request.rollout_gpus
    return Machine(
        gpus.card_bytes,
        launch.visible_gpus or gpus.count,
        nodes=request.nodes or launch.nodes,
        host_bytes=request.host_bytes or (_memory_here() if request.is_here else None),
        server_card_bytes=servers.card_bytes if servers else None,
        vllm_version=launch.versions.get("vllm"),
    )


def _memory_here() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _pool(pool: Pool) -> parts.PoolMemory:
    return parts.PoolMemory(
        role=pool.role,
        state=pool.state,
        capacity_bytes=pool.capacity_bytes,
        peak_phase=pool.decisive.name,
        peak_rank=pool.peak_rank,
        refusals=list(pool.refusals),
        phases=[
            parts.PhaseMemory(
                name=phase.name,
                low_bytes=phase.interval.low,
                bytes=phase.bytes,
                high_bytes=phase.interval.high,
                entries=[
                    parts.Entry(
                        name=entry.name,
                        bytes=entry.bytes,
                        formula=entry.formula,
                        source=entry.source,
                        knob=entry.knob,
                    )
                    for entry in phase.components
                ],
            )
            for phase in pool.phases
        ],
    )
