"""The settings of a launch by canonical name, and where each was set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.knobs.tables import BY_NAME
from grpo_doctor.knobs.values import parse
from grpo_doctor.launches.model import FROM_ENVIRONMENT, Problem, Source, ordered
from grpo_doctor.launches.programs import Program
from grpo_doctor.launches.raw_settings import RawSettings
from grpo_doctor.launches.words import Word

_UNSET = "unset-variable"
_FSDP = {1: "fsdp", 2: "fsdp2"}
_DEEPSPEED = {
    "zero_stage": "deepspeed.stage",
    "offload_optimizer_device": "deepspeed.offload_optimizer",
    "offload_param_device": "deepspeed.offload_param",
}
ACCELERATE_KEYS = {knob: key for key, knob in _DEEPSPEED.items()}
"""What accelerate's configuration, and `accelerate launch`, call DeepSpeed's settings."""
_ON_HOST = {"none": False, "cpu": True, "nvme": True}


def settings(
    raw: RawSettings, program: Program, version: str | None, environment: Mapping[str, Word]
) -> tuple[dict[str, Any], dict[str, Source], dict[str, Problem]]:
    """Return the canonical settings in the order of the table, the source of each, and the settings
    whose variables have no value here."""
    switches = {
        row.key
        for row in knobs.TABLES[program.table]
        if any(text is True for _, text in row.values)
        or (not row.values and BY_NAME[row.knob].kind == "bool")
    }  # options that say something without a value
    values = {k: v for k, v in raw.values.items() if v is not True or k in switches}
    unset = {problem.source: problem for problem in raw.problems if problem.kind == _UNSET}
    open_ = {
        row.knob: unset[option.source]
        for row in knobs.TABLES[program.table]
        if (option := raw.names.get(row.key)) is not None
        and option.unset
        and (BY_NAME[row.knob].kind not in ("str", "words") or not option.value)
    }
    values = {k: v for k, v in values.items() if k not in raw.names or not raw.names[k].unset or v}
    if raw.deepspeed is not None:
        values["deepspeed"] = dict(raw.deepspeed.values)
    sourced: dict[str, tuple[Any, Source]] = {}
    for knob, value in _from_accelerate(raw):
        assert raw.accelerate is not None
        sourced[knob] = (value, raw.accelerate.source(_ACCELERATE_KEYS.get(knob, "")))
    for knob, variable in FROM_ENVIRONMENT.items():
        word = environment.get(variable)
        value = parse(BY_NAME[knob].kind, word.text) if word else None
        if word is not None and value is not None:
            sourced[knob] = (value, word.source)
    for knob, value in knobs.canonical(program.table, version, values).items():
        sourced[knob] = (value, _source(raw, program.table, knob))
    if raw.deepspeed is not None:
        source = raw.sources.get("deepspeed", Source(""))
        sourced["deepspeed.preset"] = (raw.deepspeed.path, source)
    elif isinstance(values.get("deepspeed"), Mapping):
        sourced.pop("deepspeed.preset", None)
    sourced |= _implied(sourced, program)
    sourced = {knob: said for knob, said in sourced.items() if knob not in open_}
    return (
        ordered({knob: value for knob, (value, _) in sourced.items()}),
        {knob: source for knob, (_, source) in sourced.items()},
        open_,
    )


def _source(raw: RawSettings, table: str, knob: str) -> Source:
    for row in knobs.TABLES[table]:
        if row.knob == knob:
            for key in (row.key, *((row.gate.key,) if row.gate else ())):
                if key in raw.sources:
                    return raw.sources[key]
    if knob.startswith("deepspeed.") and raw.deepspeed is not None:
        tail = {"deepspeed.stage": "stage", "deepspeed.overlap_comm": "overlap_comm"}
        key = tail.get(knob, knob.partition(".")[2])
        return Source(key, file=raw.deepspeed.path, line=raw.deepspeed.lines.get(key))
    return raw.sources.get("deepspeed", Source(knob))


_ACCELERATE_KEYS = {
    **{knob: f"deepspeed_config.{key}" for key, knob in _DEEPSPEED.items()},
    "parallel.strategy": "distributed_type",
    "parallel.reshard": "fsdp_config.fsdp_reshard_after_forward",
    "parallel.fsdp_offload": "fsdp_config.fsdp_offload_params",
    "train.bf16": "mixed_precision",
    "train.fp16": "mixed_precision",
}


def _from_accelerate(raw: RawSettings) -> Iterator[tuple[str, Any]]:
    if raw.accelerate is None:
        return
    config = raw.accelerate.values
    kind = str(config.get("distributed_type", "")).upper()
    if kind == "DEEPSPEED" and isinstance(config.get("deepspeed_config"), Mapping):
        for key, knob in _DEEPSPEED.items():
            entry = config["deepspeed_config"].get(key)
            value = entry if knob == "deepspeed.stage" else _ON_HOST.get(str(entry))
            if value is not None:
                yield knob, value
    elif kind == "FSDP" and isinstance(config.get("fsdp_config"), Mapping):
        fsdp = config["fsdp_config"]
        yield "parallel.strategy", _FSDP.get(fsdp.get("fsdp_version", 1), "fsdp")
        for key, knob in (
            ("fsdp_reshard_after_forward", "parallel.reshard"),
            ("fsdp_offload_params", "parallel.fsdp_offload"),
        ):
            if isinstance(fsdp.get(key), bool):
                yield knob, fsdp[key]
    precision = config.get("mixed_precision")
    if precision in ("bf16", "fp16"):
        yield f"train.{precision}", True


def _implied(
    sourced: Mapping[str, tuple[Any, Source]], program: Program
) -> dict[str, tuple[Any, Source]]:
    """Return the settings that follow from those that were set."""
    implied: dict[str, tuple[Any, Source]] = {}
    if program.framework in ("verl", "openrlhf") and "train.type" not in sourced:
        rank, source = sourced.get("train.lora_rank", (0, Source("")))
        if rank:
            implied["train.type"] = ("lora", source)
    if program.framework in ("vllm", "ms-swift", "trl", "bundled") and program.role != "train":
        implied["rollout.engine"] = ("vllm", Source(program.subcommand or program.framework))
    if program.framework == "openrlhf" and sourced.get("rollout.async", (False,))[0]:
        # then colocate_all puts actor, critic and reference together, and engines apart
        implied["vllm.mode"] = ("server", sourced["rollout.async"][1])
    if program.framework == "sglang":
        implied["rollout.engine"] = ("sglang", Source("sglang"))
    return implied
