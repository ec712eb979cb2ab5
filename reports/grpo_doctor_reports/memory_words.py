"""The report's memory part in sentences."""

from __future__ import annotations

from grpo_doctor_reports import formatting
from grpo_doctor_reports.schema.memory import MemoryAdvice, MemoryCompared


def memory_sentences(memory: MemoryCompared) -> list[str]:
    """Return what was measured and predicted of memory, and what follows from it."""
    size = formatting.size
    if memory.measured_bytes is None or memory.predicted_bytes is None:
        outside = memory.reason.startswith("not modelled")
        return [f"Memory: {memory.reason}."] if outside else []
    lines = [_peak(memory)]
    if memory.row_tokens and memory.longest_row_tokens and memory.longest_bytes:
        longest = formatting.number(memory.longest_row_tokens)
        needed = size(memory.longest_bytes)
        lines.append(f"At the maximum sequence length ({longest} tokens) it would need {needed}.")
    fitting = [_with_size(item, memory.measured_bytes) for item in memory.advice if item.fits]
    if fitting:
        lines.append(f"Measured usage leaves room for one of: {', '.join(fitting)}.")
    refused = [item.spelling for item in memory.advice if item.fits_by_ledger and not item.fits]
    if refused:
        names = ", ".join(refused)
        lines.append(f"Predicted to fit, but too large judging by measured usage: {names}.")
    return lines


def _with_size(item: MemoryAdvice, now: int) -> str:
    more = item.bytes is None or item.bytes > now
    return f"{item.spelling} ({formatting.size(item.bytes) if more else 'no more than now'})"


def _peak(memory: MemoryCompared) -> str:
    size = formatting.size
    rows = f", at {memory.row_tokens} tokens per sequence" if memory.row_tokens else ""
    low, high = memory.low_bytes or 0, memory.high_bytes or 0
    wrong = not low <= (memory.measured_bytes or 0) <= high
    return (
        f"Memory, first step: rank {memory.rank} peaked at {size(memory.measured_bytes)} of "
        f"{size(memory.capacity_bytes)} (predicted: {size(memory.predicted_bytes)}, "
        f"{size(low)} to {size(high)}{rows})"
        + (": the prediction is wrong for this run." * wrong or ".")
    )
