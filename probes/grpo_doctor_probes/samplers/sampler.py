"""The sampling loop: one daemon thread that reads every source at a fixed rate into one file."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from grpo_doctor_probes.record.clock import identity
from grpo_doctor_probes.samplers.file import RowWriter, SampleFile, sample_path
from grpo_doctor_probes.samplers.gpu import GpuSampler
from grpo_doctor_probes.samplers.host import HostSampler
from grpo_doctor_probes.samplers.ranks import RankSampler
from grpo_doctor_probes.samplers.server import Address, ServerSampler
from grpo_doctor_probes.samplers.tracks import Reading, Source, Track

LIMIT_BYTES = 64 * 2**20
MIN_HZ, MAX_HZ = 0.01, 100.0
_STOP_WAIT_S = 3.0


class SystemClock:
    """The clocks of this host, which are all that the loop knows of time."""

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC, which `time.monotonic_ns` reads on Linux."""
        return time.monotonic_ns()

    def unix_ns(self) -> int:
        """CLOCK_REALTIME."""
        return time.time_ns()

    def wait_until(self, deadline_ns: int, stop: threading.Event) -> bool:
        """Sleep until the deadline; True at once when `stop` is set."""
        return stop.wait(max(0, deadline_ns - time.monotonic_ns()) / 1e9)


class Sampling:
    """Samples GPUs, host and ranks of one job into `<run_dir>/hosts/<host>.samples.jsonl`.

    Args:
        run_dir: The run directory.
        host: The name of this host; it names the file.
        job_root_pid: The job: this process and its descendants.
        hz: Ticks per second, 0.01 to 100. Whenever the file has grown by another `limit_bytes`
            the rate is halved and a note says so: the size then grows with the logarithm of time.
        sources: What to sample (default: host, ranks, GPUs and `servers`).
        servers: Rollout servers to ask for their numbers.
        clock: Where time comes from.
        limit_bytes: See `hz`.

    Nothing raises after construction. What went wrong with the file is in `problem`.
    """

    def __init__(  # noqa: PLR0913 - the last four have defaults that suit every caller but tests
        self,
        run_dir: Path,
        host: str,
        job_root_pid: int,
        hz: float = 10.0,
        *,
        sources: Sequence[Source] | None = None,
        servers: Sequence[Address] = (),
        clock: SystemClock | None = None,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        if not MIN_HZ <= hz <= MAX_HZ:
            raise ValueError(f"the sampling rate must be {MIN_HZ} to {MAX_HZ} Hz, not {hz}")
        self._host, self._hz = host, hz
        self._clock = clock or SystemClock()
        self._sources: list[Source] = list(
            sources
            if sources is not None
            else (
                HostSampler(job_root_pid),
                RankSampler(job_root_pid, run_dir=run_dir, host=host),
                GpuSampler(os.environ),
                *([ServerSampler(servers)] if servers else ()),
            )
        )
        self._file = SampleFile(sample_path(run_dir, host))
        self._rows = RowWriter()
        self._limit_step_bytes = self._limit_bytes = limit_bytes
        self._tracks_of: dict[str, set[Track]] = {source.name: set() for source in self._sources}
        self._reading: str | None = None
        self._surprises: set[str] = set()
        self._ticks = 0
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def path(self) -> Path:
        """The sample file."""
        return self._file.path

    @property
    def problem(self) -> str | None:
        """Why no samples are written any more, in words for the user; None while they are."""
        return self._file.problem

    def start(self) -> None:
        """Write the header and start the thread."""
        with self._changed:
            if self._thread is not None:
                return
            self._file.open()
            start_ns = self._clock.monotonic_ns()
            self._limit_bytes += self._file.size_bytes
            self._file.write(
                self._rows.header(self._host, self._hz, start_ns, self._clock.unix_ns(), identity())
            )
            self._thread = threading.Thread(
                target=self._loop, args=(start_ns,), name="grpo-doctor-samplers", daemon=True
            )
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling, write the end row and close the file. Safe to call twice."""
        if self._thread is None or self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(_STOP_WAIT_S)
        now_ns = self._clock.monotonic_ns()
        with self._changed:
            if self._thread.is_alive():
                text = f"the {self._reading} sampler does not return: it was abandoned"
                self._file.write(self._rows.note(now_ns, text))
            self._file.write(self._rows.end(now_ns, self._ticks))
            self._file.close()

    def latest(self) -> Mapping[str, float]:
        """The newest value of each track name, averaged over GPUs that the job may use, or ranks.

        Names without a value now are absent; units are those of the file.
        """
        with self._changed:
            values = list(self._rows.values.items())
            hidden = {uuid for uuid, gpu in self._rows.gpus.items() if not gpu.visible}
        by_name: dict[str, list[float]] = {}
        for track, value in values:
            if value is not None and track.gpu not in hidden:
                by_name.setdefault(track.name, []).append(value)
        return {name: sum(numbers) / len(numbers) for name, numbers in by_name.items()}

    def wait_for_ticks(self, ticks: int, timeout_s: float) -> bool:
        """Block until `ticks` ticks have been sampled in all; False when the time is over first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ticks >= ticks, timeout_s)

    def _loop(self, start_ns: int) -> None:
        deadline_ns, period_ns, stopped = start_ns, round(1e9 / self._hz), False
        while not stopped:
            now_ns = self._clock.monotonic_ns()
            try:
                self._tick(now_ns)
            except Exception as error:  # noqa: BLE001 - this thread must outlive every surprise
                text = f"samples of a tick were lost ({type(error).__name__}: {error})"
                if text not in self._surprises:
                    self._surprises.add(text)
                    self._file.write(self._rows.note(now_ns, text))
            if self._file.size_bytes >= self._limit_bytes:
                period_ns *= 2
                self._note_rate(1e9 / period_ns)
            # On a grid: a late tick shifts no other, and those that have passed are left out.
            deadline_ns += period_ns
            late_ns = max(0, self._clock.monotonic_ns() - deadline_ns)
            deadline_ns += late_ns // period_ns * period_ns
            stopped = self._clock.wait_until(deadline_ns, self._stop)
        for source in self._sources:
            _close(source)

    def _tick(self, now_ns: int) -> None:
        readings = [self._read(source, now_ns) for source in tuple(self._sources)]
        with self._changed:
            self._file.write(self._rows.tick(now_ns, readings))
            self._ticks += 1
            self._changed.notify_all()

    def _read(self, source: Source, now_ns: int) -> Reading:
        self._reading = source.name
        try:
            reading = source.read(now_ns)
            _require_numbers(reading)
        except Exception as error:  # noqa: BLE001 - a broken source must not silence the others
            self._sources.remove(source)
            _close(source)
            why = f"{type(error).__name__}: {error}"
            note = f"the {source.name} sampler failed and is off ({why}); other samplers continue"
            return Reading(values=dict.fromkeys(self._tracks_of[source.name]), notes=[note])
        self._tracks_of[source.name].update(reading.values)
        return reading

    def _note_rate(self, hz: float) -> None:
        size_mib = self._file.size_bytes / 2**20
        text = f"the sample file has reached {size_mib:.0f} MiB: sampling at {hz:g} Hz from here on"
        with self._changed:
            self._file.write(self._rows.note(self._clock.monotonic_ns(), text, hz=hz))
        self._limit_bytes = self._file.size_bytes + self._limit_step_bytes


def _close(source: Source) -> None:
    with contextlib.suppress(Exception):
        source.close()


def _require_numbers(reading: Reading) -> None:
    """What a driver hands out is not typed: it is checked before it can spoil a whole row."""
    for track, value in reading.values.items():
        if not isinstance(value, (int, float, type(None))):
            raise TypeError(f"{track.name} is {value!r}, not a number")
