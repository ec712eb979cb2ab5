"""Pages of rollout engines: HTTP within limits, and the numbers of `/metrics`."""

from __future__ import annotations

import http.client
import json
import math
import re

_LONGEST_BYTES = 4 << 20
_SAMPLE = re.compile(r"^(?:vllm|sglang):(\w+)(?:\{([^\n]*)\})? ([0-9.eE+-]+)$", re.MULTILINE)
# Our name of a number, and what engines and versions call it.
_NAMES = (
    ("num_requests_running", "num_requests_running num_running_reqs"),
    ("num_requests_waiting", "num_requests_waiting num_queue_reqs"),
    ("generation_tokens_total", "generation_tokens_total"),
    ("num_preemptions_total", "num_preemptions_total num_retracted_requests_total"),
    ("kv_cache_usage", "kv_cache_usage_perc gpu_cache_usage_perc token_usage"),
)
_OUR_NAMES = {theirs: ours for ours, names in _NAMES for theirs in names.split()}
# SGLang's ranks of one model may each say the same numbers, and beside the sum over all priorities,
# whose label is empty, it says them for each.
_SAME_MODEL = re.compile(r'\b(?:tp_rank|pp_rank|moe_ep_rank)="[^"]*",?')
_OF_A_PRIORITY = re.compile(r'\bpriority="[^"]')
_SLEEP, _AWAKE = "engine_sleep_state", 'sleep_state="awake"'


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


def parse_paused(status: int, text: str) -> dict[str, float]:
    """Return whether vLLM is paused; nothing where it has no such page (VLLM_SERVER_DEV_MODE).

    Raises:
        ValueError: the answer is no JSON.
    """
    answer = json.loads(text) if status == http.client.OK else None
    paused = answer.get("is_paused") if isinstance(answer, dict) else None
    return {"paused": float(paused)} if isinstance(paused, bool) else {}


def reachable(host: str) -> str:
    """Return where a server can be asked that listens at `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound


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
