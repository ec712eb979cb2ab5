"""The report's memory part in sentences."""

from __future__ import annotations

from grpo_doctor_reports import formatting
from grpo_doctor_reports.schema.memory import MemoryCompared


def memory_sentences(memory: MemoryCompared) -> list[str]:
    """Return what was measured of memory beside what was foretold, and what follows from it."""
    size = formatting.size
    if memory.measured_bytes is None or memory.predicted_bytes is None:
        return []
    rows = f" for its rows of {memory.row_tokens} tokens" if memory.row_tokens else ""
    lines = [_on_card(memory, rows) if memory.capacity_bytes else _on_host(memory, rows)]
    if memory.row_tokens and memory.longest_bytes:
        longest = formatting.number(memory.longest_row_tokens)
        needed = size(memory.longest_bytes)
        lines.append(f"Rows of {longest} tokens, the most that is allowed, would take {needed}.")
    fitting = [f"{item.spelling} ({size(item.bytes)})" for item in memory.advice if item.fits]
    if fitting:
        lines.append(f"By what was measured there is room for one of: {', '.join(fitting)}.")
    refused = [item.spelling for item in memory.advice if item.fits_by_ledger and not item.fits]
    if refused:
        lines.append(f"Foretold to fit, and by what was measured too large: {', '.join(refused)}.")
    return lines


def _on_card(memory: MemoryCompared, rows: str) -> str:
    size = formatting.size
    return (
        f"Memory, first step: {size(memory.measured_bytes)} of {size(memory.capacity_bytes)} on "
        f"rank {memory.rank}; {size(memory.predicted_bytes)} foretold{rows} "
        f"({size(memory.low_bytes)} to {size(memory.high_bytes)})."
    )


def _on_host(memory: MemoryCompared, rows: str) -> str:
    added = memory.additions[1:]
    measured = sum(addition.measured_bytes or 0 for addition in added)
    foretold = sum(addition.predicted_bytes or 0 for addition in added)
    loaded = (memory.measured_bytes or 0) - measured
    return (
        f"Memory (RSS), first step: {formatting.size(measured)} more on rank {memory.rank} than "
        f"the {formatting.size(loaded)} that were loaded; {formatting.size(foretold)} foretold"
        f"{rows}."
    )
