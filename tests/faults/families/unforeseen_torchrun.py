"""Some of the held-out faults in plain `torchrun` jobs, looked at without any argument."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.registry import FAULTS

RANKS = {
    "a program under test reads its standard input": 2,
    "a condition that nobody notifies": 2,
    "requests.post without a time limit": 3,
    "a FileLock that another process holds": 3,
}
for _way, _ranks in RANKS.items():
    _name = f"torchrun, held out: {_way}"
    FAULTS[_name] = replace(
        FAULTS[_way], name=_name, family="unforeseen_torchrun", launch="torchrun",
        world_size=_ranks, no_arguments=True,
    )  # fmt: skip
