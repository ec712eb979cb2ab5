"""`python -m grpo_doctor`: the command line where scripts are not on the PATH."""

from __future__ import annotations

import sys

from grpo_doctor.cli import main

if __name__ == "__main__":
    sys.exit(main())
