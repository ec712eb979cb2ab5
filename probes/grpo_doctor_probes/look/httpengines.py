"""Asks rollout engines how they are: /health and /metrics of vLLM and SGLang servers.

Only ports that a server is known to answer HTTP on are asked: a request to the port of a store or
of a collective library would disturb the job.
"""

from __future__ import annotations

import http.client
import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from grpo_doctor_probes.discover.commands import kind_of
from grpo_doctor_probes.discover.permission import has_our_network
from grpo_doctor_probes.evidence import EngineLook, Job, Member
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.tcp import open_sockets, tcp_table

_ROLES = frozenset({"server", "engine"})
_PORT = re.compile(r"--(?:vllm_server_)?port[= ](\d{1,5})\b")
_USUAL_PORTS = (8000, 30000)  # vLLM's and SGLang's own defaults
_AT_MOST_S = 1.0
_LONGEST_BYTES = 4 << 20
_SAMPLE = re.compile(r"^(?:vllm|sglang):(\w+)(?:\{([^\n]*)\})? ([0-9.eE+-]+)$", re.MULTILINE)
# Our name of a number, and what engines and versions call it.
_NAMES = (
    ("num_requests_running", "num_requests_running num_running_reqs"),
    ("num_requests_waiting", "num_requests_waiting num_queue_reqs"),
    ("generation_tokens_total", "generation_tokens_total"),
    ("prompt_tokens_total", "prompt_tokens_total"),
    ("num_preemptions_total", "num_preemptions_total num_retracted_requests_total"),
    ("prefix_cache_queries_total", "prefix_cache_queries_total gpu_prefix_cache_queries_total"),
    ("prefix_cache_hits_total", "prefix_cache_hits_total gpu_prefix_cache_hits_total"),
    ("prefix_cache_hits_total", "cached_tokens_total"),
    ("kv_cache_usage", "kv_cache_usage_perc gpu_cache_usage_perc token_usage"),
)
_OUR_NAMES = {theirs: ours for ours, names in _NAMES for theirs in names.split()}
# SGLang's ranks of one model may each say the same numbers, and beside the sum over all priorities,
# whose label is empty, it says them for each.
_SAME_MODEL = re.compile(r'\b(?:tp_rank|pp_rank|moe_ep_rank)="[^"]*",?')
_OF_A_PRIORITY = re.compile(r'\bpriority="[^"]')
_SLEEP, _AWAKE = "engine_sleep_state", 'sleep_state="awake"'


class _Address(NamedTuple):
    pid: int
    host: str
    port: int


def engines(job: Job, proc: Path = Path("/proc")) -> tuple[EngineLook, ...]:
    """Ask every server of the job, all at once, each page for at most a second.

    `values` has the numbers of `/metrics` summed over labels, and `healthy` 1.0 or 0.0, which is
    what `/health` answered.
    """
    fronts = {member.parent for member in job.members if member.role == "engine"}
    addresses = [
        address
        for member in job.members
        if member.role in _ROLES
        for address in _addresses(member, member.pid in fronts, proc)
    ]
    if not addresses:
        return ()
    with ThreadPoolExecutor(min(8, len(addresses)), thread_name_prefix="engines") as pool:
        return tuple(pool.map(_ask, addresses))


def parse_metrics(text: str) -> dict[str, float]:
    """Return the numbers that we use, out of Prometheus text; usage is the highest of all labels.

    `asleep` is 1.0 where an engine says that it is: only then it is there.
    """
    values: dict[str, float] = {}
    by_name: dict[str, dict[str, float]] = {}
    for name, labels, number in _SAMPLE.findall(text):
        try:
            value = float(number)
        except ValueError:
            continue
        if not math.isfinite(value):  # no JSON has it, so no bundle could be read again
            continue
        if name == _SLEEP and _AWAKE in labels and value == 0:
            values["asleep"] = 1.0
        if name in _OUR_NAMES and not _OF_A_PRIORITY.search(labels):
            engines = by_name.setdefault(name, {})
            engine = _SAME_MODEL.sub("", labels)
            engines[engine] = max(engines.get(engine, value), value)
    for name, engines in by_name.items():
        key = _OUR_NAMES[name]
        total = max(engines.values()) if "usage" in key else sum(engines.values())
        # Some versions say a number by its old and its new name.
        values[key] = max(values.get(key, total), total)
    return values


def _addresses(member: Member, is_front: bool, proc: Path) -> list[_Address]:
    """The ports to ask: the one of its command, a usual one, or where a known server has clients.

    A worker of Ray is never taken for a known server: its other ports speak another protocol.
    """
    if not has_our_network(proc, member.pid):
        return []
    table = tcp_table(proc, member.pid)
    own = [socket for inode in open_sockets(proc, member.pid) if (socket := table.of(inode))]
    listening = {
        port: host for host, port in (socket.local for socket in own if socket.state == "LISTEN")
    }
    match = _PORT.search(member.command)
    likely = [port for port in ((int(match[1]),) if match else _USUAL_PORTS) if port in listening]
    # Whose command says that it serves an engine, listens for HTTP alone.
    is_server = is_front or kind_of(member.name, tuple(member.command.split())) == "server"
    if not likely and is_server and not member.name.startswith("ray::"):
        likely = sorted(
            {socket.local_port for socket in own if socket.state == "ESTABLISHED"} & set(listening)
        )
    return [_Address(member.pid, reachable(listening[port]), port) for port in likely]


def reachable(host: str) -> str:
    """Return where a server can be asked that listens at `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound


def _ask(address: _Address) -> EngineLook:
    at_ns = time.monotonic_ns()
    host = f"[{address.host}]" if ":" in address.host else address.host
    url = f"http://{host}:{address.port}"
    ask = partial(get, address.host, address.port, timeout_s=_AT_MOST_S)
    try:
        status, text = within(_AT_MOST_S, partial(ask, "/health"))
    except (OSError, ValueError) as error:
        problem = f"{url}/health gave no answer: {error}"
        return EngineLook(address.pid, at_ns, url, problem=problem)
    values = {"healthy": float(status == http.client.OK)}
    try:
        status, text = within(_AT_MOST_S, partial(ask, "/metrics"))
        if status == http.client.OK:
            values |= parse_metrics(text)
    except (OSError, ValueError) as error:
        problem = f"{url}/metrics gave no answer: {error}"
        return EngineLook(address.pid, at_ns, url, values, problem)
    return EngineLook(address.pid, at_ns, url, values)


def get(host: str, port: int, path: str, *, timeout_s: float) -> tuple[int, str]:
    """Status and text. Raises OSError, or ValueError where the answer is not HTTP."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(_LONGEST_BYTES).decode("utf-8", "replace")
    except http.client.HTTPException as error:
        raise ValueError(f"no HTTP ({type(error).__name__})") from error
    finally:
        connection.close()
