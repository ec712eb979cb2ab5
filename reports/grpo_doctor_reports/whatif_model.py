"""The predicted sets of fixes as types."""

from __future__ import annotations

from dataclasses import dataclass

from grpo_doctor_reports.schema.findings import WhatifFix, WhatifUnknown


@dataclass(frozen=True, slots=True)
class WhatIfSet:
    """Fixes that were replayed together, and the change of the step time in percent."""

    fixes: tuple[int, ...]
    low: float | None
    mid: float
    high: float | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What the fixes would bring, alone and together."""

    step_time_s: float | None
    steps: int
    law_error_pct: float | None
    fixes: list[WhatifFix]
    sets: list[WhatIfSet]
    chosen: tuple[int, ...]
    together: tuple[int, ...]
    unknown: list[WhatifUnknown]
    note: str
