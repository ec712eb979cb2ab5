"""Made-up verdicts to look at while working on the renderers, and to test them with."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, Final

from tests.demo_reports.hostile import hostile_copy
from tests.demo_verdicts import blocked, hosts, others

__all__ = ["VISITS"]


def hostile() -> dict[str, Any]:
    """Every string tries to get out of its place; only the numbers are left alone."""
    return hostile_copy(blocked.reward_server()) | {"schema": 1}


def _copy(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return deepcopy(make())


_MAKERS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "stopped": blocked.stopped,
    "stopped64": lambda: blocked.stopped(64, 17),
    "deadlock": others.deadlock,
    "reward": blocked.reward_server,
    "slow": others.slow_rollout,
    "healthy": others.healthy,
    "dead": blocked.dead,
    "unknown": blocked.unknown,
    "ring": others.ring,
    "hosts16": lambda: hosts.many_hosts(16, 11),
    "hosts1024": hosts.many_hosts,
    "elsewhere": hosts.one_host_of_two,
    "hostile": hostile,
    "nothing": others.nothing,
}
# Copies: a test that changes its verdict changes nobody else's.
VISITS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    name: partial(_copy, make) for name, make in _MAKERS.items()
}
