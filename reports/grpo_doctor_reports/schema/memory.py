"""The report's memory part: what was predicted of the first step, and what was measured."""

from __future__ import annotations

from grpo_doctor_reports.schema.part import Name, Part, Prose


class MemoryAddition(Part, frozen=True):
    """What was there before the first step (`loaded`), or what the first pass through a phase added
    to the peak before it. `entries` are those of the memory estimate, largest first."""

    phase: Name = ""
    entries: list[Name] = []
    predicted_bytes: int | None = None
    measured_bytes: int | None = None


class MemoryAdvice(Part, frozen=True):
    """A setting that trades memory for time: the bytes with it, estimated and corrected by this
    recording, and whether they fit; `fits_by_ledger` is by the estimate alone."""

    knob: Name = ""
    spelling: Prose = ""
    bytes: int | None = None
    fits: bool = False
    fits_by_ledger: bool = False


class MemoryCompared(Part, frozen=True):
    """The peak of the first step on the rank that uses most, or in `reason` why there is nothing to
    compare. `instrument` is what measured: `gpu.memory_used`.

    The prediction is for rows of `row_tokens`, as recorded. `longest_bytes` is what rows of
    `longest_row_tokens`, the most that the settings allow, would take by what was measured, and
    the advice is for such rows. All three are absent where the measured peak lies outside of the
    prediction, or where the settings do not say how long rows may get.
    """

    reason: Prose = ""
    instrument: Name = ""
    note: Prose = ""
    rank: int | None = None
    capacity_bytes: int | None = None
    low_bytes: int | None = None
    predicted_bytes: int | None = None
    high_bytes: int | None = None
    measured_bytes: int | None = None
    row_tokens: int | None = None
    longest_row_tokens: int | None = None
    longest_bytes: int | None = None
    additions: list[MemoryAddition] = []
    advice: list[MemoryAdvice] = []
    assumptions: list[Prose] = []
