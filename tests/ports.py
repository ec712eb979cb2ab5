"""Ports for servers that are told their port and bind it later."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

_GIVEN_AWAY = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 12_000  # below are the usual ports of servers


def free_port() -> int:
    """A free one that the kernel gives to nobody who asks for any, so that it stays free."""
    first = int(_GIVEN_AWAY.read_text().split()[0])
    ports = range(_LOWEST, first) if first > 2 * _LOWEST else range(1)  # 0: any
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.SystemRandom().choice(ports)))
            return int(probe.getsockname()[1])
