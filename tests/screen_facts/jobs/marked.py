"""A loop that marks its phases, without collectives: marked.py STEPS [SLOW_RANK EXTRA_SECONDS].

Each step: rollout 60 ms, reward 20 ms (more on the slow rank), train 40 ms.
"""

from __future__ import annotations

import os
import sys
import time

from grpo_doctor_probes import phase, step

PARTS = {"rollout": 0.06, "reward": 0.02, "train": 0.04}


def main() -> None:
    steps, slow_rank, extra_s = (*map(float, sys.argv[1:]), -1, 0.0)[:3]
    is_slow = int(os.environ.get("RANK", "0")) == slow_rank
    for number in range(1, int(steps) + 1):
        with step(number):
            for name, seconds in PARTS.items():
                with phase(name):
                    time.sleep(seconds + (extra_s if name == "reward" and is_slow else 0.0))


if __name__ == "__main__":
    main()
