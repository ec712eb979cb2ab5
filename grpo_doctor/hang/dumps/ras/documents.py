"""An answer in JSON, of NCCL 2.28.7 and newer."""

from __future__ import annotations

from typing import Any

import msgspec

from grpo_doctor.hang.dumps.ras.model import Communicator, Lost, Mesh, Process, Seat

_LEAVING = ("finalize_called", "destroy_flag", "abort_flag")


def parse(text: str, at_ns: int) -> Mesh:
    """Raises ValueError where it is not such a document."""
    try:
        document = msgspec.json.decode(text)
        return Mesh(
            at_ns,
            str(document.get("nccl_version", "")),
            tuple(_communicator(one) for one in document.get("communicators", ())),
        )
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, RecursionError) as problem:
        raise ValueError(f"not an answer of NCCL's RAS: {problem!r}") from problem


def _communicator(found: dict[str, Any]) -> Communicator:
    seats = tuple(_seat(one) for one in found.get("ranks", ()))
    lost = tuple(_lost(one) for one in found.get("missing_ranks", ()))
    key = f"{found.get('hash', '')}/{found.get('secondary_hash', '')}"
    return Communicator(key, int(found.get("size", len(seats) + len(lost))), seats, lost)


def _process(found: dict[str, Any]) -> Process:
    return Process(str(found.get("host", "unknown")), int(found.get("pid", -1)))


def _seat(found: dict[str, Any]) -> Seat:
    status = found.get("status", {})
    counts = found.get("collective_counts", {})
    return Seat(
        int(found["rank"]),
        _process(found),
        {str(name): int(count) for name, count in counts.items()},
        int(status.get("init_state", 0)),
        int(status.get("async_error", 0)),
        any(bool(status.get(flag)) for flag in _LEAVING),
    )


def _lost(found: dict[str, Any]) -> Lost:
    status = found.get("status", {})
    return Lost(
        int(found["rank"]),
        _process(found),
        bool(status.get("unresponsive")),
        bool(status.get("considered_dead")),
    )
