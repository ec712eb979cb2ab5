"""Memory of a training step of the bundled trainer beside TRL's GRPOTrainer, on the CPU.

The jobs are those of `trainer_speed`. While the steps after the warm-up run, the resident memory of
every rank is read each few milliseconds. A rank's *peak* is its highest reading; what a *step*
takes is the peak less the rank's lowest reading, which is what stays between steps: libraries,
weights, optimizer. glibc keeps freed blocks below its mmap threshold, which grows while a job runs;
it is fixed for both sides, so that what is freed is seen to be free.

    python -m benchmarks.trainer_memory [--size tiny|small|long|images] [--pairs 3] [--steps 5]
    python -m benchmarks.trainer_memory --size long --flags "--share_prompts false"
    python -m benchmarks.trainer_memory --size long --vocabulary 32768

The tokenizer has a few hundred tokens; --vocabulary gives the model as many logits as a real one
has. On a GPU TRL may take other kernels for them than here.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from benchmarks.measured import children, resident_bytes
from benchmarks.pairs import mean_ratio
from benchmarks.trainer_folders import SIZES, Size
from benchmarks.trainer_jobs import (
    WARM_UP_STEPS,
    JobFailedError,
    Mark,
    our_marks,
    side_by_side,
    side_by_side_parser,
    trl_marks,
)

_SECONDS_BETWEEN_READINGS = 0.004
_SECONDS_BETWEEN_LISTINGS = 0.5
_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": str(128 * 1024)}
_MIB = 1024**2


@dataclass(frozen=True)
class Reading:
    """Resident memory of a process at a moment of the monotonic clock."""

    at_s: float
    pid: int
    resident_bytes: int


@dataclass(frozen=True)
class Memory:
    """Of the rank whose peak is the highest: its peak, and the peak less its lowest reading."""

    peak_bytes: int
    step_bytes: int

    @classmethod
    def between(cls, first: Mark, last: Mark, readings: Iterable[Reading]) -> Memory:
        """Of the readings between two marks.

        Raises:
            JobFailedError: there are none.
        """
        of_ranks: dict[int, list[int]] = {}
        for reading in readings:
            if first.wall_s <= reading.at_s <= last.wall_s:
                of_ranks.setdefault(reading.pid, []).append(reading.resident_bytes)
        if not of_ranks:
            raise JobFailedError("no rank's memory was read between its first and its last step")
        largest = max(of_ranks.values(), key=max)
        return cls(max(largest), max(largest) - min(largest))


class Watch:
    """Reads the memory of the ranks that this process has started, in a thread, until its end.

    Attributes:
        readings: in the order of time, ranks side by side.
    """

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _read(self) -> None:
        ranks: list[int] = []
        listed_s = -_SECONDS_BETWEEN_LISTINGS
        while not self._ended.wait(_SECONDS_BETWEEN_READINGS):
            now_s = time.monotonic()
            if now_s - listed_s >= _SECONDS_BETWEEN_LISTINGS:
                ranks, listed_s = grandchildren(os.getpid()), now_s
            for pid in ranks:
                if resident := resident_bytes(pid):
                    self.readings.append(Reading(now_s, pid, resident))


def grandchildren(pid: int) -> list[int]:
    """The processes whose parent is a child of this one: torchrun's ranks."""
    return [rank for launcher in children(pid) for rank in children(launcher)]


def measure(size: Size, pairs: int, steps: int, flags: list[str]) -> dict[str, list[Memory]]:
    """Both sides, pair by pair; `flags` are for ours."""

    def watched(marks_of: Callable[[Path], dict[int, Mark]]) -> Callable[[Path], Memory]:
        def memory(folder: Path) -> Memory:
            with Watch() as watch:
                marks = marks_of(folder)
            return Memory.between(marks[WARM_UP_STEPS], marks[steps], watch.readings)

        return memory

    sides = {
        "ours": watched(lambda f: our_marks(f, size, steps, *flags, environment=_ENVIRONMENT)),
        "trl": watched(lambda f: trl_marks(f, size, steps, environment=_ENVIRONMENT)),
    }
    return side_by_side(size, pairs, sides, memory_text)


def memory_text(memory: Memory) -> str:
    """In MiB."""
    return f"{memory.step_bytes / _MIB:,.0f} MiB per step (peak {memory.peak_bytes / _MIB:,.0f})"


def main() -> int:
    """Prints the ratios of memory; ends with 1 if a step of ours takes more than TRL's."""
    parser = side_by_side_parser(__doc__, steps=5)
    parser.add_argument("--vocabulary", type=int, default=0, help="columns of the model's logits")
    options = parser.parse_args()
    if options.steps <= WARM_UP_STEPS:
        parser.error(f"--steps must be more than {WARM_UP_STEPS}, which are the warm-up")
    if find_spec("trl") is None:
        print("TRL is not installed, so there is nothing to compare with: pip install trl")
        return 0
    size = replace(SIZES[options.size], vocabulary=options.vocabulary)
    measured = measure(size, options.pairs, options.steps, options.flags.split())
    pairs = list(zip(measured["ours"], measured["trl"], strict=True))
    if not pairs:
        print("no pair of runs reached its last step", file=sys.stderr)
        return 1
    ratios = {
        "step": [mine.step_bytes / theirs.step_bytes for mine, theirs in pairs],
        "peak": [mine.peak_bytes / theirs.peak_bytes for mine, theirs in pairs],
    }
    if options.json:
        memories = {side: [asdict(memory) for memory in runs] for side, runs in measured.items()}
        print(json.dumps({"memory": memories, "ratios": ratios}, indent=1))
    else:
        for kind, values in ratios.items():
            print(
                f"ours / trl, {kind} memory: {mean_ratio(values)}, {min(values):.2f} to "
                f"{max(values):.2f} ({len(pairs)} pairs of {options.steps - WARM_UP_STEPS} steps, "
                f"{options.size})"
            )
    return int(statistics.median(ratios["step"]) > 1)


if __name__ == "__main__":
    sys.exit(main())
