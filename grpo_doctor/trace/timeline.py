"""The common axis of a run: nanoseconds since the earliest thing known of it, by one clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from grpo_doctor.trace.facts import RunFacts
from grpo_doctor.trace.joined import series_within_run
from grpo_doctor.trace.jsonfile import MAX_TIME_NS, mapping, moment, whole
from grpo_doctor.trace.model import SAME_CLOCK, Clock, Process, Series
from grpo_doctor.trace.processes import Recording
from grpo_doctor.trace.samples import Samples
from grpo_doctor_probes.record import layout

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


PROCESS_PID_STEP = 1000
# Two hosts of one name (`localhost`) are told apart by wall clocks that differ by more than this.
_SAME_HOST_NS = 1_000_000_000


class Timeline:
    """Aligns what was recorded: every recording, the launcher and the sample files.

    `zero_ns` and `end_ns` are on the clock of the first recording, or the launcher's without any.
    """

    def __init__(
        self, facts: RunFacts, recordings: Sequence[Recording], samples: Sequence[Samples]
    ) -> None:
        self.recordings = recordings
        self.samples = samples
        reference = recordings[0].clock if recordings else facts.clock
        self.launcher = align(reference, facts.clock)
        self.clocks = [align(reference, r.clock) for r in recordings]
        hosts = {facts.host: self.launcher}
        hosts.update({r.host: clock for r, clock in zip(recordings, self.clocks)})
        self.sample_clocks = [_sample_clock(reference, s, hosts) for s in samples]
        own = [(r, clock) for r, clock in zip(recordings, self.clocks) if not r.joined]
        starts_ns = [r.first_ns + clock.offset_ns for r, clock in own]
        ends_ns = [r.last_ns + clock.offset_ns for r, clock in own]
        if facts.start_ns is not None:
            starts_ns.append(facts.start_ns + self.launcher.offset_ns)
            ends_ns.append((facts.end_ns or facts.start_ns) + self.launcher.offset_ns)
        ends_ns += [
            int(series.t_ns[-1]) + clock.offset_ns
            for section, clock in zip(self.samples, self.sample_clocks)
            if not section.joined
            for series in section.series
        ]
        self.zero_ns = min(starts_ns)
        self.end_ns = max(ends_ns)

    @property
    def duration_ns(self) -> int:
        """From the first to the last thing known."""
        return max(0, self.end_ns - self.zero_ns)

    def process(self, index: int) -> Process:
        """Return the process of one recording."""
        recording, clock = self.recordings[index], self.clocks[index]
        return Process(
            index=index,
            pid=PROCESS_PID_STEP * (index + 1),
            os_pid=recording.pid,
            host=recording.host,
            rank=recording.rank,
            role=recording.role,
            state=recording.state,
            local_rank=recording.local_rank,
            clock=clock,
            start_ns=self._within(recording, recording.first_ns + clock.offset_ns),
            end_ns=self._within(recording, self._last_seen(recording, clock)),
        )

    def _within(self, recording: Recording, aligned_ns: int) -> int:
        moment_ns = aligned_ns - self.zero_ns
        return min(max(0, moment_ns), self.duration_ns) if recording.joined else moment_ns

    def _last_seen(self, recording: Recording, clock: Clock) -> int:
        """When the process ended: its own word, else its last sample, else the run's end."""
        latest = recording.last_ns + clock.offset_ns
        if recording.content.header.closed_ns:
            return latest
        sampled_ns = self._last_sampled_ns.get((recording.host, recording.pid))
        return max(latest, self.end_ns if sampled_ns is None else sampled_ns)

    @cached_property
    def _last_sampled_ns(self) -> dict[tuple[str, int], int]:
        """The last sample of each process, by host and process id."""
        latest: dict[tuple[str, int], int] = {}
        for section, clock in zip(self.samples, self.sample_clocks):
            for series in section.series:
                if series.pid is not None:
                    key = series.host, series.pid
                    at_ns = int(series.t_ns[-1]) + clock.offset_ns
                    latest[key] = max(at_ns, latest.get(key, at_ns))
        return latest

    def series(self) -> tuple[Series, ...]:
        """Return samples and the ranks' own counters on the common axis."""
        shifted: list[Series] = []
        for section, clock in zip(self.samples, self.sample_clocks):
            shift_ns = clock.offset_ns - self.zero_ns
            moved = [replace(s, t_ns=s.t_ns + shift_ns) for s in section.series]
            if section.joined:
                moved = [series_within_run(s, self.duration_ns) for s in moved]
            shifted += [s for s in moved if len(s.t_ns)]
        for recording, clock in zip(self.recordings, self.clocks):
            if not recording.joined:  # collector pauses of a server are no rank's
                shifted += _counters(recording, clock.offset_ns - self.zero_ns)
        return tuple(shifted)


def _sample_clock(
    reference: Mapping[str, Any], samples: Samples, hosts: Mapping[str, Clock]
) -> Clock:
    """Sample files do not name their clock: it is that of whatever else recorded on their host."""
    wall = align(reference, samples.clock)
    host_clock = hosts.get(samples.host)
    if host_clock is None:
        return wall
    if wall.error_ns is not None and abs(wall.offset_ns - host_clock.offset_ns) > _SAME_HOST_NS:
        return wall
    return host_clock


def _counters(recording: Recording, shift_ns: int) -> list[Series]:
    records = recording.content.records
    records = records[records["kind"] == layout.COUNTER]
    return [
        Series(
            name=recording.name(int(name_id)),
            unit="",
            scope="counter",
            host=recording.host,
            t_ns=rows["start_ns"] + shift_ns,
            values=rows["value"].astype(np.float64),
            rank=recording.rank,
            pid=recording.pid,
        )
        for name_id in np.unique(records["name"])
        for rows in [records[records["name"] == name_id]]
    ]
