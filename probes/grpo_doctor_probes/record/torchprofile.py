"""A PyTorch profiler trace of some steps, in addition to our own, if `run` was asked for it.

Phases are in it as ranges of the same names, and steps as `ProfilerStep#N` with our numbers, so
that both can be laid side by side. torch is never imported here, only asked where the job has it.
"""

from __future__ import annotations

import contextlib
import os
import sys

from grpo_doctor_probes.record.rundir import DRIVER, PROFILE_VARIABLE, PROFILES
from grpo_doctor_probes.record.sidecar import ROLE

TYPE_CHECKING = False  # `typing` costs 7 ms of import in the job
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_STEP = "ProfilerStep#"  # by which viewers and importers know a step


class TorchProfile:
    """Profiles the steps `first` to `last` of this process into one file.

    The profiler starts before the first and is written after the last, both between two steps, so
    that no step is longer by that. The steps themselves are, as with any profiler.
    """

    def __init__(self, path: str, first: int, last: int) -> None:
        self._path = path
        self._first, self._last = first, last
        self._profiler: Any = None
        self._step: Any = None
        self._ranges: Ranges | None = None

    @classmethod
    def if_asked(cls, run_dir: str, rank: int) -> TorchProfile | None:
        """What the environment asks of a process that carries steps itself; None without that."""
        steps = os.environ.get(PROFILE_VARIABLE)
        if not steps or ROLE.of_this_process() == DRIVER:
            return None
        first, _, count = steps.partition(":")
        try:
            return cls(
                f"{run_dir}/{PROFILES}/rank-{rank:05d}.pt.trace.json",
                int(first),
                int(first) + int(count or 1) - 1,
            )
        except ValueError:
            return None

    def before_step(self, number: int, phase: Any) -> None:
        """Start the profiler where the first step begins, and mark each step's beginning.

        Args:
            number: of the step.
            phase: the class of which all spans are.
        """
        if not self._first <= number <= self._last:
            return
        if self._profiler is None:
            self._start(phase)
        self._step = self._ranges.open(f"{_STEP}{number}") if self._ranges else None

    def after_step(self, number: int) -> None:
        """Mark the end of a step; write the file after the last one."""
        if self._profiler is None:
            return
        marked, self._step = self._step, None
        if marked is not None:
            marked.__exit__(None, None, None)
        if number >= self._last:
            self.close()

    def close(self) -> None:
        """End profiling and write what there is; a job that ends early has fewer steps in it."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        self._first = self._last + 1  # a resumed run goes back: once is enough
        if self._ranges is not None:
            self._ranges.restore()
        profiler.stop()
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - no pathlib in the job
        profiler.export_chrome_trace(self._path)

    def _start(self, phase: Any) -> None:
        torch = sys.modules.get("torch")
        if torch is None:
            return
        from importlib import import_module  # noqa: PLC0415 - most jobs are never profiled

        module = import_module("torch.profiler")
        activities = [module.ProfilerActivity.CPU]
        if torch.cuda.is_initialized():  # `is_available` would ask the driver
            activities.append(module.ProfilerActivity.CUDA)
        profiler = module.profile(activities=activities)
        profiler.start()
        self._profiler = profiler
        self._ranges = Ranges(module.record_function, phase)


class Ranges:
    """Gives each phase that begins from now on a range of its name, until `restore`."""

    def __init__(self, make: Callable[[str], Any], phase: Any) -> None:
        self._make, self._phase = make, phase
        self._open: dict[int, Any] = {}
        self._enter, self._leave = phase.__enter__, phase.__exit__
        ranges, enter, leave = self, self._enter, self._leave

        def entered(span: Any) -> None:
            enter(span)
            ranges.begin(span)

        def exited(span: Any, *error: Any) -> None:
            ranges.end(span)
            leave(span, *error)

        phase.__enter__, phase.__exit__ = entered, exited

    def open(self, name: str) -> Any:
        """Return a range that has begun."""
        opened = self._make(name)
        opened.__enter__()
        return opened

    def begin(self, span: Any) -> None:
        """Open the range of a phase; a step has another one."""
        key = span._key  # noqa: SLF001 - of this package
        name = key[0] if isinstance(key, tuple) else key
        if not isinstance(name, str):
            return
        with contextlib.suppress(Exception):  # the span is recorded, its range is not
            self._open[id(span)] = self.open(name)

    def end(self, span: Any) -> None:
        """Close the range of a phase, if it began within the profile."""
        opened = self._open.pop(id(span), None)
        if opened is not None:
            with contextlib.suppress(Exception):
                opened.__exit__(None, None, None)

    def restore(self) -> None:
        """Phases are as they were before. Those that are open end without a range's end."""
        self._phase.__enter__, self._phase.__exit__ = self._enter, self._leave
        self._open.clear()
