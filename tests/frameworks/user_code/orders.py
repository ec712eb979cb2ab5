"""Which fault is due in this process: a file that the bench writes while the job runs.

ORDERS names a JSON file: {"act": "socket", "rank": 1, "seconds": 12}. `rank` limits an act to one
rank; a process that obeys leaves a file with its number beside it, once an act.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

PATH = Path(os.environ.get("ORDERS", "/nonexistent"))
NONE: dict[str, Any] = {"act": ""}


def count_call() -> None:
    """Lets the bench know that a reward was called."""
    with (PATH.parent / "scored").open("ab") as file:
        file.write(b".")


def due(*acts: str) -> dict[str, Any]:
    """The order, if it is one of these acts and meant for this process; else one without an act."""
    try:
        order: dict[str, Any] = json.loads(PATH.read_text())
    except (OSError, ValueError):
        return NONE
    rank = order.get("rank")
    meant = rank is None or os.environ.get("RANK") == str(rank)
    if order["act"] not in acts or not meant:
        return NONE
    (PATH.parent / f"obeys-{order['act']}-{os.getpid()}").touch()
    return order
