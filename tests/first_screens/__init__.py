"""Ten runs and what the first screen of each has to say: what is wrong, and what to type.

`python -m tests.first_screens` (`make first-screens`) draws and photographs them for
docs/reading-a-report.md. `tests/unit/reports/test_first_screens.py` holds the words.
"""

from __future__ import annotations

from tests.first_screens.answers import SCREENS, Screen

__all__ = ["SCREENS", "Screen"]
