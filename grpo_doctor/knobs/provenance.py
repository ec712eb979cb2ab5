"""Where the value of a setting comes from, and whether it has any effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.knobs.tables import KNOBS


class Provenance(str, Enum):
    """Only what was given or read is a fact of a run."""

    GIVEN = "given"
    """By the command line, a configuration file or a script."""
    READ = "read"
    """From the running job, which reports its whole configuration."""
    DEFAULT = "default"
    """Of that version of the framework."""
    ASSUMED = "assumed"
    """By grpo-doctor: it was not set, and the framework has no such default."""

    @property
    def is_fact(self) -> bool:
        """Whether a header, a difference or a finding may rest on it alone."""
        return self in (Provenance.GIVEN, Provenance.READ)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, None where nothing is known; `active` is False where another setting, such as
    `vllm.use`, takes its effect away."""

    value: Any
    provenance: Provenance
    active: bool = True

    @property
    def fact(self) -> Any:
        """The value if it was given or read and has an effect, else None."""
        return self.value if self.active and self.provenance.is_fact else None


@dataclass(frozen=True, slots=True)
class Settings:
    """What is known of the settings of one launch or run: `said`, all of one provenance."""

    framework: str
    version: str | None
    said: Mapping[str, Any]
    provenance: Provenance

    def __getitem__(self, knob: str) -> Setting:
        active = is_active(knob, self)
        if knob in self.said:
            return Setting(self.said[knob], self.provenance, active)
        value = knobs.default(self.framework, self.version, knob)
        return Setting(value, Provenance.DEFAULT, active)

    @property
    def facts(self) -> dict[str, Any]:
        """Every setting that was given or read and has an effect."""
        return {knob: value for knob, value in self.said.items() if is_active(knob, self)}

    def is_known(self, knob: str) -> bool:
        """Whether it is settled: set, or missing from a job that reports everything."""
        return knob in self.said or self.provenance is Provenance.READ

    def settled(self, knob: str) -> Any:
        """Return what holds where it is known."""
        if knob in self.said:
            return self.said[knob]
        return knobs.default(self.framework, self.version, knob)


@dataclass(frozen=True, slots=True)
class Needs:
    """Settings without effect while each of `parents` is known to have a value in `off`, or where
    there are values `on`, one that is none of them."""

    settings: tuple[str, ...]
    parents: tuple[str, ...]
    off: tuple[Any, ...] = ()
    on: tuple[Any, ...] = ()

    def are_taken_away(self, settings: Settings) -> bool:
        """Return whether nothing of what these settings need is there."""
        values = [settings.settled(name) for name in self.parents if settings.is_known(name)]
        is_off = [value not in self.on if self.on else value in self.off for value in values]
        return len(values) == len(self.parents) and all(is_off)


def _needs(settings: str, parents: str, off: tuple[Any, ...] = (), **on: tuple[Any, ...]) -> Needs:
    return Needs(tuple(settings.split()), tuple(parents.split()), off, **on)


_ZERO_3 = (
    "deepspeed.offload_param deepspeed.prefetch_bucket_size deepspeed.persistence_threshold "
    "deepspeed.hpz_partition_size"
)
_ZERO = f"{_ZERO_3} deepspeed.offload_optimizer deepspeed.pin_memory deepspeed.overlap_comm"
_BELOW_3 = (None, 0, 1, 2, "zero0", "zero1", "zero2")
_MEGATRON = "parallel.distributed_optimizer parallel.recompute parallel.sequence"
NEEDS: tuple[Needs, ...] = (
    _needs("vllm.[!u]* sync.move_model_batches", "vllm.use", (False,)),
    _needs("vllm.*", "rollout.engine", on=(None, "vllm", "sglang", "trtllm")),
    _needs("vllm.server_* vllm.group_port", "vllm.mode", ("colocate",)),
    _needs("vllm.max_lora_rank", "vllm.enable_lora", (False,)),
    _needs("train.lora_* vllm.enable_lora", "train.type", ("full",)),
    _needs("train.lora_alpha train.lora_targets", "train.lora_rank", (0,)),
    _needs(_ZERO, "deepspeed.preset deepspeed.stage", (None, 0, "zero0")),
    _needs(_ZERO_3, "deepspeed.stage", (0, 1, 2)),
    _needs("sync.gather_for_generation", "deepspeed.stage deepspeed.preset", _BELOW_3),
    _needs("rollout.importance_mode rollout.importance_cap", "rollout.importance_correction",
           (False,)),
    _needs("rollout.queue_size", "rollout.async", (False,)),
    _needs("rollout.max_resample", "rollout.dynamic_sampling", (False,)),
    _needs("train.max_tokens_per_gpu", "train.dynamic_batch", (False,)),
    _needs("train.micro_batch", "train.dynamic_batch", (True,)),
    _needs("dataload.prefetch_factor dataload.persistent_workers", "dataload.num_workers", (0,)),
    _needs("parallel.reshard parallel.fsdp_*", "parallel.strategy", ("megatron", "deepspeed")),
    _needs(f"{_MEGATRON} parallel.virtual_pipeline", "parallel.strategy",
           ("fsdp", "fsdp2", "deepspeed")),
    _needs("parallel.virtual_pipeline", "parallel.pipeline", (1,)),
    _needs("parallel.sequence", "parallel.tensor", (1,)),
    _needs("eval.micro_batch", "eval.steps", (0,)),
    _needs("model.reference sync.ref_model", "train.beta", (0,)),
)  # fmt: skip
"""A setting is active only if none of these takes its effect away."""
_NEEDS_OF: Mapping[str, tuple[Needs, ...]] = {
    knob.name: tuple(
        need for need in NEEDS if any(fnmatchcase(knob.name, name) for name in need.settings)
    )
    for knob in KNOBS
}


def is_active(knob: str, settings: Settings) -> bool:
    """Return whether a setting may have an effect: no setting that it needs is known to be off."""
    return not any(need.are_taken_away(settings) for need in _NEEDS_OF.get(knob, ()))
