"""What the user sees: plain lines on stdout, from rank 0 unless another rank has a problem."""

from __future__ import annotations

import logging
import sys

LOG = logging.getLogger("grpo_doctor_trainer")


def set_up_console(rank: int) -> None:
    """Send this trainer's log to stdout; ranks other than 0 speak only of problems."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        logging.Formatter("%(message)s" if rank == 0 else f"[rank {rank}] %(message)s")
    )
    LOG.handlers = [handler]
    LOG.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    LOG.propagate = False
