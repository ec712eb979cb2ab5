"""What the user sees: plain lines on stdout, from rank 0 unless another rank has a problem."""

from __future__ import annotations

import itertools
import logging
import sys

LOG = logging.getLogger("grpo_doctor_trainer")
_BARS = "▁▂▃▄▅▆▇█"


def set_up_console(rank: int) -> None:
    """Send this trainer's log to stdout; ranks other than 0 speak only of problems."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        logging.Formatter("%(message)s" if rank == 0 else f"[rank {rank}] %(message)s")
    )
    LOG.handlers = [handler]
    LOG.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    LOG.propagate = False


def complain(message: str) -> None:
    """Write one error to stderr."""
    sys.stderr.write(f"error: {message}\n")
    sys.stderr.flush()


def sparkline(values: list[float], width: int = 60) -> str:
    """Draw a curve as one line of block characters, averaging neighbors to fit `width`."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, span = min(means), max(means) - min(means)
    if span == 0:
        return _BARS[0] * count
    return "".join(_BARS[round((mean - low) / span * (len(_BARS) - 1))] for mean in means)
