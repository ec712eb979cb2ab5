"""The trace of several files of the profiler: each rank's steps, ranges and device on one clock.

Which phase a range of `record_function` is: PyTorch's own, those of frameworks, and ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.importers.kineto.rank import STEP, Collective, Device, Range, RankFile, nanoseconds
from grpo_doctor.phases import phase_of
from grpo_doctor.trace.columns import Interned, Rows
from grpo_doctor.trace.intervals import Intervals, covered_within, together
from grpo_doctor.trace.model import Clock, Gpu, Kind, Process, Series, Spans

_PHASES = (
    (r"enumerate\(DataLoader\)#|## (data_?load|load_batch)", "dataload"),
    (r"Optimizer\.step#|## optimizer ##|optimizer_step$", "optimizer"),
    (r"## (forward|backward|loss) ##", "train"),
    (r"(DistributedDataParallel|FullyShardedDataParallel|DataParallel)\.forward$", "train"),
    (r"(update_actor|update_policy|compute_loss)$", "train"),
    # vLLM names its steps after the batch; SGLang after the kind of batch.
    (r"execute_(model|new|context|\d)|step\[|generate_sequences$", "rollout/generate"),
    (r"_?generate_and_score_completions$|vLLM\.generate$", "rollout"),
    (r"compute_ref_log_prob$", "logprob/reference"),
    (r"compute_log_prob$", "logprob/old"),
    (r"_?calculate_rewards$|compute_reward$|compute_score$", "reward"),
    (r"update_weights$|sync_weights$|_move_model_to_vllm$", "sync"),
    (r"save_checkpoint$|_save_checkpoint$", "checkpoint"),
)
_PATTERN = re.compile("|".join(f"(?P<p{i}>{pattern})" for i, (pattern, _) in enumerate(_PHASES)))


def span_of(name: str) -> str | None:
    """Return the span of ours that a range is, None where its name is not of a phase."""
    if phase_of(name):
        return name
    # verl's and TRL's ranges carry the name of the class: `ActorRolloutRefWorker.update_actor`.
    match = _PATTERN.match(name) or _PATTERN.match(name.rpartition(".")[2])
    return _PHASES[int(match.lastgroup[1:])][1] if match and match.lastgroup else None


_PID_STEP = 1000
# Streams of the device as threads of the process, next to those of the CPU.
_FIRST_STREAM = 1000
# Enough for a chart; a step's own edges are added, so that its mean is exact.
_SAMPLES = 2000
# `tensorboard_trace_handler` names files so: host, process, time.
_WRITTEN_BY = re.compile(r"(.+)_\d+\.\d+\.pt\.trace\.json")


class Assembly:
    """Rows, processes, devices and their series, file by file."""

    def __init__(self, files: Sequence[RankFile]) -> None:
        self.zero_ns = min(_begin_ns(file) for file in files)
        self.names = Interned()
        self.args: list[dict[str, Any]] = []
        self.processes: list[Process] = []
        self.gpus: list[Gpu] = []
        self.series: list[Series] = []
        self.said: list[str] = []
        self.end_ns = 0
        self._rows = Rows()
        self._several = len(files) > 1
        self._groups = Interned()
        for file in files:
            self._add(file)

    def spans(self) -> Spans:
        """Return all rows, in the model's order."""
        return self._rows.spans()

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases that any range names."""
        return tuple(sorted({phase for name in self.names if (phase := phase_of(name))}))

    def _add(self, file: RankFile) -> None:
        first = len(self._rows)
        shift_ns = file.base_ns - self.zero_ns
        main = file.steps[0].thread if file.steps else _busiest(file.ranges)
        for step in file.steps:
            number = step.name.removeprefix(STEP)
            self._row(Kind.STEP, "step", step, shift_ns, value=float(number))
        ranges = sorted(
            (r for r in file.ranges if r.thread == main), key=lambda r: (r.start_us, -r.length_us)
        )
        on_device_us = _on_device_us(ranges, file)
        for depth, interval, took_us in zip(_depths(ranges), ranges, on_device_us, strict=True):
            name = span_of(interval.name) or interval.name
            self._row(Kind.SPAN, name, interval, shift_ns, depth=depth + 1)
            if took_us is not None:
                took_ms = took_us / 1000
                self._row(Kind.CUDA_SPAN, name, interval, shift_ns, depth=depth + 1, value=took_ms)
        for collective in file.collectives:
            self._collective(collective, shift_ns)
        ends = self._rows.columns["end_ns"][first:]
        ends += [self._device(file, index, file.devices[index]) for index in sorted(file.devices)]
        self.end_ns = max([self.end_ns, *ends])
        self.processes.append(self._process(file, max(ends, default=0)))

    def _process(self, file: RankFile, end_ns: int) -> Process:
        assert file.rank is not None
        index = len(self.processes)
        devices = list(file.devices)
        return Process(
            index=index,
            pid=_PID_STEP * (index + 1),
            os_pid=file.os_pid,
            host=_host(file),
            rank=file.rank,
            local_rank=devices[0] if len(devices) == 1 else None,
            clock=Clock(0, None if self._several else 0, "the profiler's clock of each host"),
            start_ns=_begin_ns(file) - self.zero_ns,
            end_ns=end_ns,
        )

    def _collective(self, call: Collective, shift_ns: int) -> None:
        group = self._groups[call.group]
        if group == len(self.args):
            self.args.append({"group": call.group or "unknown"})
        own = {"thread": _FIRST_STREAM + call.stream, "args": group}
        self._row(Kind.COLLECTIVE, call.name, call, shift_ns, value=float(call.sequence), **own)

    def _device(self, file: RankFile, number: int, device: Device) -> int:
        """Return the series of one device; the moment at which it was last seen."""
        base_ns = file.base_ns - self.zero_ns
        busy, talking = (a.merged(base_ns) for a in (device.everything, device.communication))
        if not len(busy):
            return 0
        properties = {gpu.id: gpu for gpu in file.head.deviceProperties}.get(number)
        uuid = f"rank {file.rank} GPU {number}"
        self.gpus.append(
            Gpu(
                uuid=uuid,
                name=properties.name if properties else "GPU",
                index=number,
                host=_host(file),
                memory_total_bytes=properties.totalGlobalMem if properties else 0,
            )
        )
        begin, end = int(busy.start_ns[0]), int(busy.end_ns[-1])
        steps = _windows(file, self.zero_ns)
        edges = np.unique(np.r_[np.linspace(begin, end, _SAMPLES).astype(np.int64), steps.ravel()])
        for name, stretches in (("gpu.util", busy), ("gpu.nccl", talking)):
            if len(stretches):
                covered = covered_within(stretches, edges[:-1], edges[1:])
                values = 100 * covered / np.maximum(1, np.diff(edges))
                self.series.append(
                    Series(name, "%", "gpu", _host(file), edges, np.r_[values, values[-1:]], uuid)
                )
        computing = device.computation.merged(base_ns)
        lifetime = np.array([[begin, end]])
        period = "step time" if len(steps) else f"{(end - begin) / 1e9:.3g} s from its first kernel"
        shares = _shares(busy, talking, computing, steps if len(steps) else lifetime)
        self.said.append(f"{uuid}: busy {shares.replace('%', f'% of the {period}', 1)}.")
        return end

    def _row(
        self, kind: Kind, name: str, at: Range | Collective, shift_ns: int, **fields: Any
    ) -> None:
        start_ns = shift_ns + nanoseconds(at.start_us)
        end_ns = start_ns + max(0, round(at.length_us * 1000))
        process = len(self.processes)
        self._rows.add(kind, self.names[name], start_ns, end_ns, process=process, **fields)


def _shares(
    busy: Intervals, talking: Intervals, computing: Intervals, steps: NDArray[np.int64]
) -> str:
    """Return a device in words: busy, communicating, and communicating without other work."""
    active = together([talking, computing])
    whole_ns = max(1, int((steps[:, 1] - steps[:, 0]).sum()))

    def share(part: Intervals) -> float:
        return 100 * float(covered_within(part, steps[:, 0], steps[:, 1]).sum()) / whole_ns

    text = f"{share(busy):.0f}%"
    if len(talking):
        alone = share(active) - share(computing)
        text += f", in communication {share(talking):.0f}%, with no other kernel {alone:.0f}%"
    return text


def _windows(file: RankFile, zero_ns: int) -> NDArray[np.int64]:
    """Begin and end of each step, shape (steps, 2)."""
    begins = [(nanoseconds(s.start_us), round(s.length_us * 1000)) for s in file.steps]
    windows = np.array([(begin, begin + length) for begin, length in begins if length > 0])
    return windows.astype(np.int64).reshape(-1, 2) + (file.base_ns - zero_ns)


def _begin_ns(file: RankFile) -> int:
    """Unix time of the first thing in a file."""
    first = [interval.start_us for interval in (*file.steps, *file.ranges)]
    first += [min(d.everything.start_us) for d in file.devices.values() if d.everything.start_us]
    return file.base_ns + nanoseconds(min(first, default=0.0))


def _host(file: RankFile) -> str:
    written = _WRITTEN_BY.match(file.path.name)
    return written[1] if written else "unknown"


def _busiest(ranges: Sequence[Range]) -> int:
    """Return the thread with most range time, for files without steps."""
    seconds: dict[int, float] = {}
    for interval in ranges:
        seconds[interval.thread] = seconds.get(interval.thread, 0.0) + interval.length_us
    return max(seconds, key=lambda thread: seconds[thread], default=0)


def _on_device_us(ranges: Sequence[Range], file: RankFile) -> list[float | None]:
    """How long the device was in each range of a phase, as between two CUDA events at its ends;
    None where no kernel was launched in it. `ranges` by start, the longest first.

    Autograd launches the kernels of a backward pass from a thread of its own, outside any range:
    `train` lasts until the first kernel of what follows."""
    done_us, began_us = file.done_us, file.began_us
    took: list[float | None] = [None] * len(ranges)
    within: list[tuple[int, float]] = []
    reached_us = 0.0
    trained: int | None = None

    def close(row: int, begin_us: float) -> None:
        nonlocal reached_us, trained
        interval = ranges[row]
        measured = interval.link in done_us and interval.link and span_of(interval.name)
        last_kernel_us = done_us[interval.link] if measured else 0.0
        reached_us = max(reached_us, _end_us(interval), last_kernel_us)
        if measured:
            took[row] = reached_us - begin_us
            trained = row if span_of(interval.name) == "train" else None

    for row, interval in enumerate(ranges):
        while within and _end_us(ranges[within[-1][0]]) <= interval.start_us:
            close(*within.pop())
        reached_us = max(reached_us, interval.start_us)
        first_us = began_us.get(interval.link, 0.0)
        if trained is not None and first_us > reached_us:
            took[trained] = (took[trained] or 0.0) + first_us - reached_us
            reached_us = first_us
        within.append((row, reached_us))
    while within:
        close(*within.pop())
    return took


def _end_us(interval: Range) -> float:
    return interval.start_us + interval.length_us


def _depths(ranges: Sequence[Range]) -> list[int]:
    """Return how many ranges each one lies in; `ranges` by start, the longest first."""
    open_ends: list[float] = []
    depths = []
    for interval in ranges:
        while open_ends and open_ends[-1] <= interval.start_us:
            open_ends.pop()
        depths.append(len(open_ends))
        open_ends.append(_end_us(interval))
    return depths
