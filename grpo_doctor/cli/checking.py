"""What `check` reports of a launch, as one document: problems, the estimate, what to change."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from grpo_doctor.cli.check_memory import MemoryCheck, Request
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.launches import Launch
from grpo_doctor.launches.domain import unread
from grpo_doctor.launches.judge import Judged, judge
from grpo_doctor.launches.model import Source
from grpo_doctor.launches.rule import EVERY_COMMAND, Flaw
from grpo_doctor.launches.view import Host, ModelFacts, View
from grpo_doctor_probes.record.redact import redact_mapping, redact_text
from grpo_doctor_reports.schema import check as parts

if TYPE_CHECKING:
    from grpo_doctor.memory import Ledger, ModelShape, Pool

_GIB = 2**30
_ENDS = ("oom", "invalid")
_SOME_RANK = ("the first pipeline stage", "the last GPU")
_SHM = "/dev/shm"  # noqa: S108 - it is measured, not written to


def check(launch: Launch, request: Request) -> parts.CheckDocument:
    """Return the document on a launch."""
    view, flaws, memory = _judged(launch, request)
    verdict, headline = _verdict(launch, flaws, memory)
    first = any(judged.flaw.first for judged in flaws)
    document = parts.CheckDocument(
        verdict=verdict,
        headline=headline,
        launch=_launch(launch, view.processes_per_node),
        companions=[_launch(companion, None) for companion in launch.companions],
        gpus=str(request.gpus) if request.gpus else None,
        flaws=[_flaw(judged) for judged in flaws],
        memory=memory.part,
        not_estimated=memory.reason,
        fix=None if first else memory.fix,
        relief=[] if first else memory.relief,
        room=memory.room if verdict == "fits" else [],
        solved=memory.solved(request.solve) if request.solve else None,
        assumptions=[*launch.assumptions, *memory.assumed()],
    )
    return _without_secrets(document)


_Part = TypeVar("_Part", bound=msgspec.Struct)


def _without_secrets(part: _Part) -> _Part:
    """Return the same part of a document; a launch may hold secrets anywhere in its words."""
    values = {name: getattr(part, name) for name in part.__struct_fields__}
    return msgspec.structs.replace(part, **{name: _hidden(v) for name, v in values.items()})


def _hidden(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return _without_secrets(value)
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    if isinstance(value, dict):
        plain = redact_mapping(
            {k: v for k, v in value.items() if not isinstance(v, msgspec.Struct)}
        )
        return {k: plain.get(str(k), v) if k in plain else _hidden(v) for k, v in value.items()}
    return redact_text(value) if isinstance(value, str) else value


def first_line(launch: Launch, request: Request) -> tuple[str, str]:
    """Return the verdict and the headline alone, without looking for what to change."""
    _, flaws, memory = _judged(launch, request)
    verdict, headline = _verdict(launch, flaws, memory)
    return verdict, redact_text(headline)


def _judged(launch: Launch, request: Request) -> tuple[View, tuple[Judged, ...], MemoryCheck]:
    shape, unknown = _shape(launch)
    view = View(launch, _host(launch, request), _facts(shape) if shape else None)
    missing = unread(launch)
    unknown = missing.text if missing is not None else unknown
    return view, judge(view), MemoryCheck(launch, request, unknown)


def _verdict(launch: Launch, flaws: Sequence[Judged], memory: MemoryCheck) -> tuple[str, str]:
    """Return one word, and a sentence with the one thing that decides."""
    missing, outside = unread(launch), EVERY_COMMAND.outside(launch, "check")
    first = flaws[0].flaw if flaws and outside is None else None
    if first is not None and (first.ends or first.first):
        return "invalid", f"No: {first.headline}" if first.ends else _sentence(first.headline)
    if missing is not None and (outside is None or launch.trainer == "unknown"):
        return "unknown", f"Unknown: {missing.text}. {_sentence(missing.fix)}"
    outside = outside or memory.not_modelled
    if outside is not None:
        return "not-modelled", f"Not modeled: {outside}"
    if memory.ledger is None:
        return "unknown", f"{_notes(flaws)}; {memory.reason}"
    older = memory.oldest.ledger if memory.oldest else None
    if older is not None and (older.state in _ENDS) != (memory.state in _ENDS):
        return "tight", _by_version(launch, memory.ledger, older)
    unverified = next((judged.flaw for judged in flaws if judged.flaw.unverified), None)
    return memory.state, _fits(memory.ledger.worst, unverified)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _notes(flaws: Sequence[Judged]) -> str:
    """`Nothing stops it for certain, with 1 warning and 2 notes`."""
    warnings = sum(judged.flaw.severity in ("high", "medium") for judged in flaws)
    counts = [
        f"{count} {word}{'s' if count > 1 else ''}"
        for count, word in ((warnings, "warning"), (len(flaws) - warnings, "note"))
        if count
    ]
    said = "Nothing stops it for certain, with"
    return f"{said} {' and '.join(counts)}" if counts else "No problem found"


def _fits(worst: Pool, unverified: Flaw | None) -> str:
    """Return whether it fits, by which side of the capacity the interval is on."""
    if worst.refusals:
        return f"No: out of memory at startup: {worst.refusals[0]}"
    phase, of = worst.decisive, worst.capacity_bytes
    low, middle, high = (size / _GIB for size in astuple(phase.interval))
    each = {"host": "per host", "rollout": "per GPU of the rollout server"}.get(
        worst.role, "per GPU"
    )
    rank = f", on {worst.peak_rank}" if worst.peak_rank in _SOME_RANK else ""
    peak = (
        f"peak {middle:.1f} GiB ({low:.1f} to {high:.1f}) of {of / _GIB:.1f} GiB {each}, "
        f"in the {phase.name} phase{rank}"
    )
    if worst.state == "oom":
        return f"It probably does not fit: {peak}"
    if worst.state == "tight":
        likely = "It may fit" if phase.bytes <= of else "It may not fit"
        free = of / _GIB - high
        little = f"; as little as {free:.1f} GiB stays free" if free >= 0 else ""
        return f"{likely}: {peak}{little}"
    if unverified is not None:
        return f"It probably fits; not verified: {unverified.headline}; {peak}"
    return f"It probably fits: {peak}"


def _by_version(launch: Launch, newer: Ledger, older: Ledger) -> str:
    """Return what of the memory depends on the version, which the launch does not say."""
    _, _, reason = _fits(newer.worst, None).partition(": ")
    opening = "It may not fit" if newer.state in _ENDS else "It may fit"
    there = {"fits": "it fits", "tight": "it may fit"}.get(older.state, "it does not fit")
    first = launch.oldest.version if launch.oldest else None
    return (
        f"{opening}: {reason}, with {launch.framework} {launch.version}; {there} with {first}, "
        f"which takes these options too. Give --version {launch.framework}=X"
    )


# -- the machine and the model


def _host(launch: Launch, request: Request) -> Host:
    gpus, servers = request.gpus, request.rollout_gpus
    is_measured = request.is_here and gpus is not None
    return Host(
        cards_per_node=gpus.count if gpus else None,
        nodes=request.nodes,
        card_bytes=gpus.card_bytes if gpus else None,
        host_bytes=request.host_bytes,
        server_cards=servers.count if servers else None,
        shm_bytes=_total(_SHM) if is_measured else None,
        free_disk_bytes=_free(launch) if is_measured else None,
        is_here=request.is_here,
    )


def _total(path: str) -> int | None:
    try:
        return shutil.disk_usage(path).total
    except OSError:
        return None


def _free(launch: Launch) -> int | None:
    """Free bytes where checkpoints go, or where they would be made."""
    folder = Path(str(launch.value("checkpoint.directory") or ".")).expanduser()
    existing = next((p for p in (folder, *folder.absolute().parents) if p.exists()), Path())
    try:
        return shutil.disk_usage(existing).free
    except OSError:
        return None


def _shape(launch: Launch) -> tuple[ModelShape | None, str | None]:
    from grpo_doctor.memory import model_shape  # noqa: PLC0415

    if not launch.model:
        return None, "the launch names no model"
    try:
        return model_shape(str(launch.model)), None
    except (GrpoDoctorError, OSError, ValueError) as problem:
        return None, str(problem)


def _facts(shape: ModelShape) -> ModelFacts:
    return ModelFacts(
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        layers=shape.layers,
        parameters=shape.parameters,
        max_positions=shape.max_positions,
        experts=shape.experts.count if shape.experts else None,
        pixels_per_token=shape.vision.pixels_per_token if shape.vision else None,
    )


def _launch(launch: Launch, processes_per_node: int | None) -> parts.LaunchChecked:
    return parts.LaunchChecked(
        framework=launch.framework,
        version=launch.version,
        role=launch.role,
        command=launch.subcommand,
        model=launch.model,
        processes_per_node=processes_per_node,
        nodes=launch.nodes,
        settings=dict(launch.settings),
        said={knob: _source(source) for knob, source in launch.sources.items()},
    )


def _source(source: Source) -> parts.Said:
    return parts.Said(
        text=source.text, argument=source.argument, file=source.file, line=source.line
    )


def _flaw(judged: Judged) -> parts.FlawSeen:
    flaw = judged.flaw
    return parts.FlawSeen(
        id=judged.id,
        slug=judged.slug,
        severity=flaw.severity,
        ends=flaw.ends,
        command=judged.command,
        headline=flaw.headline,
        evidence=list(flaw.evidence),
        fixes=list(flaw.fixes),
        said=_source(flaw.source) if flaw.source else None,
    )
