"""Samples rollout servers over their `/metrics`: those that a job's command names, and a server
that joins a run.

Only addresses that the command itself says are asked: what listens elsewhere may be no HTTP server.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple
from urllib.parse import urlsplit

from grpo_doctor_probes.discover.commands import kind_of
from grpo_doctor_probes.procs.enginepages import get, parse_metrics, reachable
from grpo_doctor_probes.samplers.tracks import Reading, Track

_PERIOD_S = 1.0
_TIMEOUT_S = 2.0
_DEFAULT_HOST, _DEFAULT_PORT = "127.0.0.1", 8000
_SGLANG_PORT = 30000
_NO_PAGE = frozenset({http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED})
_HOST, _PORT, _URL = "vllm_server_host", "vllm_server_port", "vllm_server_base_url"
# As vLLM and SGLang call them: ours and the unit. The share is of 1 there.
_GAUGES = {
    "num_requests_running": Track("server.requests_running", "count"),
    "num_requests_waiting": Track("server.requests_waiting", "count"),
    "kv_cache_usage": Track("server.kv_cache", "%"),
}
# Of what is counted since the server began.
_RATES = {
    "generation_tokens_total": Track("server.generated_tokens", "1/s"),
    "num_preemptions_total": Track("server.preemptions", "1/s"),
}


class Address(NamedTuple):
    """Where a server answers."""

    host: str
    port: int


def named_servers(command: Sequence[str]) -> tuple[Address, ...]:
    """The servers of a trainer's command, by the flags of TRL and ms-swift, several of each too.

    None where it has no such flag: settings that a script makes itself are not seen.
    """
    flags: dict[str, list[str]] = {_HOST: [], _PORT: [], _URL: []}
    for name, value in _flags(command):
        if name in flags:
            flags[name].append(value)
    urls = [urlsplit(url if "//" in url else f"//{url}") for url in flags[_URL]]
    try:
        addresses = [Address(u.hostname, u.port or _DEFAULT_PORT) for u in urls if u.hostname]
        if not addresses and (flags[_HOST] or flags[_PORT]):
            ports = [int(port) for port in flags[_PORT]] or [_DEFAULT_PORT]
            hosts = flags[_HOST] or [_DEFAULT_HOST] * len(ports)
            ports += ports[-1:] * (len(hosts) - len(ports))
            addresses = [Address(reachable(h), p) for h, p in zip(hosts, ports)]
    except ValueError:  # a port that is none: the job's own message says so
        return ()
    return tuple(dict.fromkeys(addresses))


def serving_at(command: Sequence[str]) -> tuple[Address, ...]:
    """Where a server listens, by its own command: `--host`, `--port`, else what it does by default.

    None where the command neither says a port nor is known to serve, or has no TCP port (`--uds`).
    """
    flags = dict(_flags(command))
    usual = ""
    if kind_of(PurePath(command[0]).name if command else "", tuple(command)) == "server":
        usual = str(_SGLANG_PORT if "sglang" in " ".join(command) else _DEFAULT_PORT)
    port = flags.get("port", usual)
    if "uds" in flags or not port.isdecimal():
        return ()
    return (Address(reachable(flags.get("host", _DEFAULT_HOST)), int(port)),)


def _flags(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each flag with each of its values."""
    name = ""
    for word in command:
        if word.startswith("--"):
            name, joined, value = word[2:].partition("=")
            name = name.replace("-", "_")
            if joined:
                yield name, value
                name = ""
        elif name:
            yield name, word


class ServerSampler:
    """Sums over all servers, the highest for the cache. A thread of its own asks once a second, so
    that a server that does not answer holds nothing up. Who has no such page is asked once: each
    request is a line of its log."""

    name = "server"

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = list(addresses)
        self._latest: dict[Track, float | None] = {}
        self._totals: dict[str, tuple[int, float]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def read(self, now_ns: int) -> Reading:
        """Return what the servers said last; a server that stopped answering has no values."""
        del now_ns
        if self._addresses and self._thread is None:
            self._thread = threading.Thread(
                target=self._loop, name="grpo-doctor-servers", daemon=True
            )
            self._thread.start()
        return Reading(values=dict(self._latest))

    def close(self) -> None:
        """Ask no more."""
        self._stop.set()

    def _loop(self) -> None:
        while not self._stop.is_set():
            answers = list(filter(None, map(self._ask, list(self._addresses))))
            self._take(answers, time.monotonic_ns())
            self._stop.wait(_PERIOD_S)

    def _take(self, answers: Sequence[dict[str, float]], at_ns: int) -> None:
        values: dict[Track, float | None] = dict.fromkeys(self._latest)
        for name, track in _GAUGES.items():
            numbers = [answer[name] for answer in answers if name in answer]
            if numbers:
                values[track] = 100 * max(numbers) if track.unit == "%" else sum(numbers)
        for name, track in _RATES.items():
            totals = [answer[name] for answer in answers if name in answer]
            if not totals:
                continue
            total, before = sum(totals), self._totals.get(name)
            self._totals[name] = (at_ns, total)
            if before is not None and at_ns > before[0]:
                more = max(0.0, total - before[1])  # a restarted server counts from 0
                values[track] = 1e9 * more / (at_ns - before[0])
        self._latest = values

    def _ask(self, address: Address) -> dict[str, float]:
        """Return the numbers of a server; {} where it has no such page or does not answer."""
        try:
            status, text = get(address.host, address.port, "/metrics", timeout_s=_TIMEOUT_S)
        except (OSError, ValueError):
            return {}
        if status in _NO_PAGE:
            self._addresses.remove(address)
        return parse_metrics(text) if status == http.client.OK else {}
