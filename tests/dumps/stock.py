"""PyTorch's own analyzer on folders of pickles, all in one process; one JSON line per folder.

    python -m tests.dumps.stock FOLDER ...

It is what `torchfrtrace FOLDER -p trace_rank_` runs, with its log caught.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Sequence

_CULPRIT = re.compile(r"Culprit rank (\d+)")
_MISSING = re.compile(r"missing ranks: \{([\d, ]+)\}")


class _Caught(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def blamed(log: str) -> list[int]:
    """The ranks it calls culprits or missing."""
    culprits = {int(rank) for rank in _CULPRIT.findall(log)}
    for ranks in _MISSING.findall(log):
        culprits |= {int(rank) for rank in ranks.split(",")}
    return sorted(culprits)


def analyze(folders: Sequence[str]) -> None:
    """Prints {folder, crash, blamed, log} for each."""
    from torch.distributed.flight_recorder import fr_trace

    logger = logging.getLogger("Flight Recorder")
    for folder in folders:
        handler = _Caught()
        logger.addHandler(handler)
        crash = ""
        try:
            fr_trace.main([folder, "-p", "trace_rank_"])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any end is its answer
            crash = f"{type(error).__name__}: {str(error)[:80]}"
        logger.removeHandler(handler)
        log = "\n".join(handler.lines)
        print(json.dumps({"folder": folder, "crash": crash, "blamed": blamed(log), "log": log}))  # noqa: T201


if __name__ == "__main__":
    analyze(sys.argv[1:])
