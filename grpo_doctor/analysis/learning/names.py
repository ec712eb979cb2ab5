"""What the frameworks call the metrics of learning, by `names.json`: the newest names first.

Read from the trainers of TRL 0.15 to 1.16 (ms-swift logs TRL's names), verl 0.4 and 0.9, slime
0.3.1 (miles has its names), NeMo RL 0.7, and from OpenRLHF's documented log lines; the bundled
trainer logs the names of TRL 1.16. verl's `critic/rewards` has the KL penalty in it: its score is
what the functions gave. `kl` is against the reference policy; verl's `actor/ppo_kl` is against the
policy that sampled.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import msgspec

METRICS: Mapping[str, dict[str, tuple[str, ...]]] = msgspec.json.decode(
    Path(__file__).with_name("names.json").read_bytes(), type=dict[str, dict[str, tuple[str, ...]]]
)
_LOGS_AS = {"ms-swift": "trl", "bundled": "trl", "miles": "slime"}


def key_of(metric: str) -> str:
    """Return a metric's newest name in TRL."""
    return METRICS[metric]["trl"][0]


def own_keys(metric: str, framework: str) -> tuple[str, ...]:
    """Return a metric's names in one framework; none where it does not log it."""
    return METRICS[metric].get(_LOGS_AS.get(framework, framework), ())


def spellings(metric: str, framework: str = "unknown") -> list[str]:
    """All names of a metric: those of this framework first, then those of others."""
    others = chain.from_iterable(METRICS[metric].values())
    return list(dict.fromkeys([*own_keys(metric, framework), *others]))
