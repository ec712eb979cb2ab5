"""`python -m grpo_doctor_trainer.check FLAGS`: are these flags right for WORLD_SIZE ranks?

0: yes. 2: no, and one message says what is right. It imports no torch and takes a moment: a
launcher asks here first, because torchrun shows a mistake in a flag as a page of tracebacks.
"""

from __future__ import annotations

import os
import sys

from grpo_doctor_trainer.errors import TrainerError
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.logs.console import complain


def main() -> int:
    """Check the command line of this process; returns the exit code."""
    try:
        parse(sys.argv[1:], int(os.environ.get("WORLD_SIZE", "1")))
    except TrainerError as error:
        complain(str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
