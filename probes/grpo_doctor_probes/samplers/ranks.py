"""Samples the ranks of this host: CPU time and waits for a CPU, memory, page faults, threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from grpo_doctor_probes.procs.procfs import read
from grpo_doctor_probes.procs.procstat import CLOCK_TICKS_PER_S, Stat
from grpo_doctor_probes.samplers.jobtree import JobTree, RankGroup
from grpo_doctor_probes.samplers.tracks import Pace, Reading, Track

SCAN_PERIOD_NS = 1_000_000_000
# The kernel counts processor time in 10 ms: shorter windows would show steps of 10% and more.
SAMPLE_PERIOD_NS = 200_000_000
# By what the files that a process has mapped have in their path.
_LIBRARIES = {
    b"/numpy/": "NumPy",
    b"/torch/lib/": "torch",
    b"/tokenizers/": "transformers",
    b"/vllm/_C": "vLLM",  # not an environment called so
    b"/sgl_kernel/": "SGLang",
    b"/jaxlib/": "JAX",
    b"/tensorflow/": "TensorFlow",
}
_MOST_BYTES = 4 << 20  # a process of torch and CUDA maps some 300 kB of lines


class RankSampler:
    """`rank.cpu`, `rank.rss` and `rank.major_faults` add up a rank's main process and its workers
    (data loaders, a rollout engine). Of the main process alone: `rank.threads`, `rank.processors`
    (how many it may run on), and `rank.cpu_wait`, the share of the time in which its main thread
    was ready to run and had no processor.

    The job as a whole, from the same readings: `job.cpu`, `job.rss` and `job.processes`. Each known
    library that a job without ranks loads is named.

    Memory that processes share, such as pages that a forked worker has not written to, is counted
    in each of them. Processes are looked for once a second.
    """

    name = "rank"

    def __init__(
        self, job_root_pid: int, *, run_dir: Path, host: str, proc: Path = Path("/proc")
    ) -> None:
        self._proc = proc
        self._libraries: set[str] = set()
        self._tree = JobTree(job_root_pid, run_dir, host, proc)
        self._groups: list[RankGroup] = []
        self._usage: dict[int, Stat] = {}
        self._earlier: dict[int, Stat] = {}
        self._waited_ns: dict[int, int] = {}
        self._sampled_ns: int | None = None
        self._live: set[Track] = set()
        self._scan_pace = Pace(SCAN_PERIOD_NS)
        self._sample_pace = Pace(SAMPLE_PERIOD_NS)

    def read(self, now_ns: int) -> Reading:
        """Sample every rank; the tracks of a rank that has ended become null."""
        reading = Reading()
        if self._scan_pace.due(now_ns):
            begun_ns = time.thread_time_ns()
            self._groups = self._tree.scan(now_ns)
            if not self._groups:
                loads = (loaded(self._proc / str(pid)) for pid in self._tree.processes)
                reading.libraries += sorted(set().union(*loads) - self._libraries)
                self._libraries.update(reading.libraries)
            self._scan_pace.done(now_ns, time.thread_time_ns() - begun_ns)
        if not self._sample_pace.due(now_ns):
            return reading
        begun_ns = time.thread_time_ns()
        self._read_usage()
        for group in self._groups:
            reading.values.update(self._sample(group, now_ns))
        if self._tree.processes:
            reading.values.update(self._sample_job(now_ns))
        self._sampled_ns = now_ns
        for pid in self._waited_ns.keys() - self._usage.keys():
            del self._waited_ns[pid]
        for track in self._live - reading.values.keys():
            reading.values[track] = None
        self._live = {track for track, value in reading.values.items() if value is not None}
        self._sample_pace.done(now_ns, time.thread_time_ns() - begun_ns)
        return reading

    def close(self) -> None:
        """Nothing is held open."""

    def _sample(self, group: RankGroup, now_ns: int) -> dict[Track, float | None]:
        main = self._usage.get(group.main)
        if main is None:
            return {}

        def track(name: str, unit: str) -> Track:
            return Track(f"rank.{name}", unit, pid=group.main, rank=group.rank)

        values = self._totals(group.pids, now_ns, track)
        values[track("threads", "count")] = main.threads
        processors = self._tree.processes[group.main].processors()
        if processors is not None:
            values[track("processors", "count")] = processors
        share = self._waited_share(group.main, now_ns)
        if share is not None:
            values[track("cpu_wait", "%")] = 100.0 * share
        return values

    def _totals(
        self, pids: Iterable[int], now_ns: int, track: Callable[[str, str], Track]
    ) -> dict[Track, float | None]:
        """Return memory, and what was used since the sample before, of these processes in all."""
        used = [(self._usage[pid], self._earlier.get(pid)) for pid in pids if pid in self._usage]
        values: dict[Track, float | None] = {
            track("rss", "bytes"): sum(usage.rss_bytes for usage, _ in used)
        }
        known = [(usage, earlier) for usage, earlier in used if earlier is not None]
        if known and self._sampled_ns is not None and now_ns > self._sampled_ns:
            elapsed_s = (now_ns - self._sampled_ns) / 1e9
            ticks = sum(usage.cpu_ticks - earlier.cpu_ticks for usage, earlier in known)
            faults = sum(usage.major_faults - earlier.major_faults for usage, earlier in known)
            values[track("cpu", "%")] = 100.0 * (ticks / CLOCK_TICKS_PER_S) / elapsed_s
            values[track("major_faults", "1/s")] = faults / elapsed_s
        return values

    def _sample_job(self, now_ns: int) -> dict[Track, float | None]:
        values = self._totals(
            self._tree.processes, now_ns, lambda name, unit: Track(f"job.{name}", unit)
        )
        values.pop(Track("job.major_faults", "1/s"), None)
        return {**values, Track("job.processes", "count"): len(self._tree.processes)}

    def _waited_share(self, pid: int, now_ns: int) -> float | None:
        process = self._tree.processes.get(pid)
        waited = process.main_thread_waited_ns() if process is not None else None
        if waited is None:
            return None
        previous = self._waited_ns.get(pid)
        self._waited_ns[pid] = waited
        if previous is None or self._sampled_ns is None or now_ns <= self._sampled_ns:
            return None
        return min(1.0, max(0.0, (waited - previous) / (now_ns - self._sampled_ns)))

    def _read_usage(self) -> None:
        """Each process once, so that the job is never less than one of its ranks."""
        self._earlier, self._usage = self._usage, {}
        for pid, process in tuple(self._tree.processes.items()):
            usage = process.usage()
            if usage is None:
                del self._tree.processes[pid]
            else:
                self._usage[pid] = usage


def loaded(folder: Path) -> set[str]:
    """The known libraries of the process whose folder in /proc this is; none if it has gone."""
    try:
        maps = read(folder / "maps", _MOST_BYTES)
    except OSError:
        return set()
    return {name for part, name in _LIBRARIES.items() if part in maps}
