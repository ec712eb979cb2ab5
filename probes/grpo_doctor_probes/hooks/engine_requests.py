"""What vLLM's scheduler does with each request: its queue, prefill, decode.

vLLM's own times of a request need `disable_log_stats` off and stay with the client of its engine.
These rows are the engine's, and are joined to a trajectory by the request's name.
"""

from __future__ import annotations

import re
from time import monotonic_ns
from typing import Any

from grpo_doctor_probes.record.trajectories import (
    ABORTED,
    DECODE,
    DONE,
    ENGINE_QUEUE,
    PREFILL,
    opened,
    served,
)

# Since 0.14 the engine appends this to the name that its client gave.
_APPENDED = re.compile(r"-[0-9a-f]{8}$")


class EngineRequests:
    """The requests that this process's scheduler has."""

    def __init__(self) -> None:
        # Their states, and since when they were in each.
        self._since: dict[str, list[tuple[str, int]]] = {}
        self._preempted: set[str] = set()
        # How many tokens each had before this prefill: one that was preempted has some.
        self._prefilling: dict[str, int] = {}

    def queued(self, _scheduler: Any, request: Any, *_: Any, **__: Any) -> None:
        """The engine has got a request."""
        name = request.request_id
        # Nobody asks for a number.
        if not _asked_name(name).isdigit() and name not in self._since and opened() is not None:
            self._since[name] = [(ENGINE_QUEUE, monotonic_ns())]

    def scheduled(self, output: Any, scheduler: Any, *_: Any, **__: Any) -> None:
        """An iteration begins."""
        begin = [new.req_id for new in output.scheduled_new_reqs]
        begin += [name for name in self._preempted if name in output.num_scheduled_tokens]
        for name in begin:
            self._preempted.discard(name)
            request = scheduler.requests.get(name)
            if self._be(name, PREFILL) and request is not None:
                self._prefilling[name] = request.num_output_tokens

    def stepped(self, scheduler: Any, *_: Any, **__: Any) -> None:
        """The tokens of an iteration are there."""
        for name, before in list(self._prefilling.items()):
            request = scheduler.requests.get(name)
            if request is None or request.num_output_tokens > before:
                del self._prefilling[name]
                self._be(name, DECODE)

    def preempted(self, _scheduler: Any, request: Any, *_: Any, **__: Any) -> None:
        """A request gives up its room in the cache, and waits again."""
        if self._be(request.request_id, ENGINE_QUEUE):
            self._preempted.add(request.request_id)
            self._prefilling.pop(request.request_id, None)

    def freed(self, _scheduler: Any, request: Any, *_: Any, **__: Any) -> None:
        """A request has ended."""
        self._preempted.discard(request.request_id)
        self._prefilling.pop(request.request_id, None)
        since = self._since.pop(request.request_id, None)
        if since is not None:
            outcome = ABORTED if "ABORT" in request.status.name else DONE
            served(_asked_name(request.request_id), since, outcome)

    def _be(self, name: str, state: str) -> bool:
        """Note that a request's state changes now; return whether it is followed."""
        since = self._since.get(name)
        if since is not None:
            since.append((state, monotonic_ns()))
        return since is not None


def _asked_name(name: str) -> str:
    return _APPENDED.sub("", name)


REQUESTS = EngineRequests()
