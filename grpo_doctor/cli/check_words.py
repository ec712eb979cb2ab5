"""A check's document in words: one screen, lines for GitHub, or SARIF."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from grpo_doctor import __version__
from grpo_doctor_reports.markdown import annotation, level_of
from grpo_doctor_reports.schema.check import ChangeOfLaunch, CheckDocument, FlawSeen, PoolMemory

_BAR = 30
_MOST_FLAWS = 8
_MOST_ENTRIES = 4
_GIB = 2**30
_STATES = {"tight": "may not fit", "oom": "does not fit", "invalid": "does not start"}
_LEVELS = {"high": "error", "medium": "warning", "low": "note", "info": "note"}
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def render(document: CheckDocument, form: str) -> bytes:
    """Return the document as `text`, `github` or `sarif`."""
    if form == "sarif":
        return json.dumps(_sarif(document), indent=1).encode() + b"\n"
    lines = _github(document) if form == "github" else _text(document)
    whole = (line.replace("\n", " ") for line in lines)  # a value of a script may have several
    return "".join(f"{line}\n" for line in whole).encode("utf-8", "replace")


# -- text


def _text(document: CheckDocument) -> Iterator[str]:
    yield document.headline
    memory = document.memory
    for pool in memory.pools if memory else ():
        yield ""
        yield from _pool(pool)
    if document.fix is not None:
        yield ""
        yield "To make it fit:"
        yield from _settings(document.fix)
    elif document.relief:
        yield ""
        surely = "surely " if document.verdict == "tight" else ""
        yield f"No known setting {surely}makes this fit on these GPUs. Largest savings:"
        for change in document.relief:
            yield from _settings(change)
    if document.room:
        yield ""
        yield "There is room for:"
        for change in document.room:
            yield from _settings(change)
    if document.solved is not None:
        yield ""
        solved = document.solved
        largest = solved.spelling or (f"{solved.value:g}" if solved.value is not None else "none")
        yield f"Largest {solved.knob} that fits: {largest}"
    yield from _flaws(document)
    if document.assumptions:
        yield ""
        yield "Assumed:"
        yield from (f"  {sentence}" for sentence in document.assumptions)


def _pool(pool: PoolMemory) -> Iterator[str]:
    capacity = pool.capacity_bytes
    unit = "host" if pool.role == "host" else "GPU"
    state = _STATES.get(pool.state, pool.state)
    yield f"{pool.role}, {capacity / _GIB:.1f} GiB per {unit}: {state}"
    widest = max([capacity, *(phase.high_bytes for phase in pool.phases)])
    for phase in pool.phases:
        bar = "#" * max(1, round(_BAR * phase.bytes / widest))
        edge = round(_BAR * capacity / widest)
        drawn = bar.ljust(edge) + "|" if len(bar) <= edge else bar[:edge] + "|" + bar[edge:]
        low, high = phase.low_bytes / _GIB, phase.high_bytes / _GIB
        numbers = f"{phase.bytes / _GIB:6.1f} GiB ({low:.1f} to {high:.1f})"
        yield f"  {phase.name:<11} {drawn:<{_BAR + 1}} {numbers}"
    peak = next((phase for phase in pool.phases if phase.name == pool.peak_phase), None)
    if peak is not None:
        entries = sorted(peak.entries, key=lambda entry: -entry.bytes)[:_MOST_ENTRIES]
        largest = ", ".join(f"{entry.name} {entry.bytes / _GIB:.1f}" for entry in entries)
        yield f"  largest in {peak.name}: {largest}"


def _settings(change: ChangeOfLaunch) -> Iterator[str]:
    saved = change.saved_bytes / _GIB
    less = f"{abs(saved):.1f} GiB {'less' if saved > 0 else 'more'}" if round(saved, 1) else ""
    # One flag may be several settings: a DeepSpeed preset is.
    tails: dict[str, list[str]] = {}
    for setting in change.settings:
        tails.setdefault(setting.spelling, []).append(setting.cost)
    next(iter(tails.values()), []).append(less)
    for spelling, tail in tails.items():
        yield f"  {spelling:<43}  {'; '.join(part for part in tail if part)}".rstrip()


def _flaws(document: CheckDocument) -> Iterator[str]:
    if not document.flaws:
        return
    yield ""
    yield "Wrong with the launch:" if any(f.ends for f in document.flaws) else "Worth checking:"
    for flaw in document.flaws[:_MOST_FLAWS]:
        source = f"  {_source_text(flaw)}" if flaw.said and flaw.said.file else ""
        owner = f" {flaw.id}" if flaw.id.startswith("GL") else ""
        yield f"  {flaw.severity}{owner}: {flaw.headline}{source}"
        yield from (f"      {text}" for text in flaw.evidence)
        if flaw.fixes:
            yield f"      fix: {'; '.join(flaw.fixes)}"
    unlisted = len(document.flaws) - _MOST_FLAWS
    if unlisted > 0:
        yield f"  and {unlisted} more: --json has all"


def _source_text(flaw: FlawSeen) -> str:
    source = flaw.said
    if source is None or source.file is None:
        return "the command line"
    return f"{source.file}:{source.line}" if source.line else source.file


# -- GitHub and SARIF


def _github(document: CheckDocument) -> Iterator[str]:
    for flaw in document.flaws:
        source = flaw.said
        position = {"file": source.file, "line": source.line or 1} if source and source.file else {}
        yield annotation(level_of(flaw.severity), _message(flaw), **position)
    level = "error" if document.verdict in ("oom", "invalid") else "notice"
    yield annotation(level, document.headline)


def _message(flaw: FlawSeen) -> str:
    fix = f" Fix: {'; '.join(flaw.fixes)}" if flaw.fixes else ""
    return f"{flaw.headline}.{fix}"


def _sarif(document: CheckDocument) -> dict[str, Any]:
    rules = {flaw.id: flaw.slug for flaw in document.flaws}
    results = [_result(flaw) for flaw in document.flaws]
    if document.memory is not None and document.verdict in ("oom", "invalid"):
        message = {"text": document.headline}
        results.append({"ruleId": "memory", "level": "error", "message": message})
        rules["memory"] = "does-not-fit"
    driver = {
        "name": "grpo-doctor",
        "version": __version__,
        "rules": [{"id": name, "name": slug} for name, slug in rules.items()],
    }
    return {
        "$schema": _SARIF,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _result(flaw: FlawSeen) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": flaw.id,
        "level": _LEVELS[flaw.severity],
        "message": {"text": _message(flaw)},
    }
    if flaw.said and flaw.said.file:
        region = {"startLine": flaw.said.line or 1}
        location = {"artifactLocation": {"uri": flaw.said.file}, "region": region}
        result["locations"] = [{"physicalLocation": location}]
    return result
