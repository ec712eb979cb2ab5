"""Puts every process's monotonic clock on the axis of the first one's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grpo_doctor.trace.jsonfile import MAX_TIME_NS, mapping, moment, whole
from grpo_doctor.trace.model import SAME_CLOCK, Clock

# What is left between two hosts' wall clocks under NTP or chrony: usually 0.1 to 10 ms.
NTP_ERROR_NS = 10_000_000


def align(reference: Mapping[str, Any], other: Mapping[str, Any]) -> Clock:
    """Return the clock of `other`, aligned to `reference`; rank files describe both.

    Processes of one boot and time namespace read the same clock: nothing to correct. Otherwise
    the pairs of monotonic and wall clock decide, and the difference between the pair taken at
    the start and the one taken at the end is added to the error.
    """
    identity = other.get("clock_id")
    if identity and identity == reference.get("clock_id"):
        return SAME_CLOCK
    offsets = [theirs - ours for ours, theirs in zip(_epochs(reference), _epochs(other))]
    if not offsets or abs(offsets[0]) > MAX_TIME_NS:
        return Clock()
    drift = max(offsets) - min(offsets)
    return Clock(offsets[0], NTP_ERROR_NS + drift, "wall clock")


def _epochs(facts: Mapping[str, Any]) -> list[int]:
    """Unix time of monotonic zero, once per reading: at the start, and at the end if it came."""
    readings = facts.get("clocks")
    epochs = []
    for reading in readings if isinstance(readings, list) else ():
        unix_ns = whole(mapping(reading).get("unix_ns"))
        monotonic_ns = moment(mapping(reading).get("monotonic_ns"))
        if unix_ns is not None and monotonic_ns is not None:
            epochs.append(unix_ns - monotonic_ns)
    return epochs
