"""A user's own loop whose weights and inputs lie on different devices: `python two_devices.py`.

The user's line names no number of processes, so on two GPUs one process spread the model over both.
There is no second GPU here; torch's `meta` device stands in for it, and torch raises its own error.
"""

from __future__ import annotations

import torch

from grpo_doctor_probes import phase, step


def main() -> None:
    weights = torch.ones(4, 4)
    for number in range(1, 4):
        with step(number):
            with phase("rollout"):
                tokens = torch.ones(2, 4)
            with phase("logprob"):
                device = "meta" if number == 3 else "cpu"
                torch.cat([tokens @ weights, torch.ones(2, 4, device=device)])


if __name__ == "__main__":
    main()
