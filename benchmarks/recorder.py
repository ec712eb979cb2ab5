"""What a span costs, beside its peers, and what importing the recorder costs.

Every kind of span is entered and left in short turns, one kind after another, a hundred times;
medians and ratios are of the same minutes on the same machine. Peers that are not installed are
said and left out: torch, trl (with transformers), viztracer, opentelemetry-sdk.
Run: `python -m benchmarks.recorder [--rounds 100]`.
"""

# ruff: noqa: PLC0415 - peers are imported where they are measured, and only if they are there

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

PROBES = Path(__file__).parents[1] / "probes"
SPANS_PER_TURN = 2000
OURS, EMPTY, TRL = "phase", "empty context manager", "TRL ProfilingContext"
TRAJECTORY = "a trajectory of three turns"
MAX_RATIO_TO_TRL = 1.2
MAX_IMPORT_MS = 20.0
_WARM_UP_ROUNDS = 3
Turn = Callable[[], float]


class Empty:
    """What any context manager written in Python costs at least."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass


def loop(context: str, **names: object) -> Turn:
    """A function of its own that enters and leaves `context`, an expression over `names`."""
    source = f"""
def turn():
    begun = clock()
    for _ in range({SPANS_PER_TURN}):
        with {context}:
            pass
    return clock() - begun
"""
    scope: dict[str, Any] = {**names, "clock": time.perf_counter}
    exec(source, scope)
    turn: Turn = scope["turn"]
    return turn


def empty() -> Iterator[Turn]:
    yield loop("Empty('rollout')", Empty=Empty)


def ours() -> Iterator[Turn]:
    from grpo_doctor_probes import phase, start, stop

    with tempfile.TemporaryDirectory() as folder:
        assert start(folder)
        yield loop("phase('rollout')", phase=phase)
        stop()


def trajectory() -> Iterator[Turn]:
    """What hooks write of a sample that answers three times, with a tool's call in between; and
    what they write of its three requests where the engine is."""
    from grpo_doctor_probes.record import recorder, trajectories

    class Sample(Empty):
        def __enter__(self) -> None:
            one = trajectories.begin()
            assert one is not None
            one.note(group=3, put=170686820873598, sample=1, step=7)
            for name in ("generate", "tool/search", "generate", "tool/search", "generate"):
                with one.part(name):
                    pass
            for number in range(3):
                one.note(asked=trajectories.key_of(number))
                now_ns = time.monotonic_ns()
                since = [(name, now_ns) for name in ("engine queue", "prefill", "decode")]
                trajectories.served(number, since)
            one.note(tokens=512, version=6, last_version=7)
            with one.part("reward"):
                pass
            one.end()

    with tempfile.TemporaryDirectory() as folder:
        assert recorder.start(folder)
        yield loop("Sample('rollout')", Sample=Sample)
        recorder.stop()


def trl() -> Iterator[Turn]:
    """With the arguments that TRL's own code gives, and no tracker to report to."""
    from trl.extras.profiling import ProfilingContext

    call = "Context(name='rollout', report_to=trackers, is_main_process=True, step=7)"
    yield loop(call, Context=ProfilingContext, trackers=[])


def record_function() -> Iterator[Turn]:
    import torch

    yield loop("record('rollout')", record=torch.profiler.record_function)


def record_function_profiled() -> Iterator[Turn]:
    import torch

    spans = loop("record('rollout')", record=torch.profiler.record_function)

    def turn() -> float:
        with quiet(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            return spans()

    yield turn


def opentelemetry() -> Iterator[Turn]:
    """Spans that are made and exported to nowhere."""
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider()
    tracer = provider.get_tracer("benchmark")
    yield loop("tracer.start_as_current_span('rollout')", tracer=tracer)
    provider.shutdown()


def viztracer() -> Iterator[Turn]:
    from viztracer import VizTracer

    tracer = VizTracer(verbose=0, tracer_entries=10 * SPANS_PER_TURN)
    spans = loop("tracer.log_event('rollout')", tracer=tracer)

    def turn() -> float:
        tracer.start()
        elapsed_s = spans()
        tracer.stop()
        tracer.clear()
        return elapsed_s

    yield turn


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Standard error goes nowhere: the profiler says there when it starts and stops."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


PEERS: dict[str, Callable[[], Iterator[Turn]]] = {
    EMPTY: empty,
    OURS: ours,
    TRAJECTORY: trajectory,
    TRL: trl,
    "torch record_function": record_function,
    "torch record_function, profiled": record_function_profiled,
    "OpenTelemetry SDK span": opentelemetry,
    "viztracer log_event": viztracer,
}


def measure(rounds: int) -> tuple[dict[str, float], dict[str, str]]:
    """Median nanoseconds per span of each kind, and why some were left out."""
    with contextlib.ExitStack() as stack:
        turns, absent = _prepare(stack)
        times: dict[str, list[float]] = {name: [] for name in turns}
        for number in range(rounds + _WARM_UP_ROUNDS):
            for name, turn in turns.items():
                elapsed_s = turn()
                if number >= _WARM_UP_ROUNDS:
                    times[name].append(elapsed_s * 1e9 / SPANS_PER_TURN)
    return {name: statistics.median(values) for name, values in times.items()}, absent


def _prepare(stack: contextlib.ExitStack) -> tuple[dict[str, Turn], dict[str, str]]:
    turns: dict[str, Turn] = {}
    absent: dict[str, str] = {}
    for name, make in PEERS.items():
        try:
            turns[name] = stack.enter_context(contextlib.contextmanager(make)())
            turns[name]()
        except ImportError as problem:
            absent[name] = str(problem)
    return turns, absent


def import_cost(runs: int = 15) -> tuple[float, list[str]]:
    """Milliseconds that importing the recorder adds to a bare Python, and what is not stdlib."""
    with tempfile.TemporaryDirectory() as cache:
        env = {"PYTHONPYCACHEPREFIX": cache, "PATH": os.environ.get("PATH", "")}
        add = f"import sys; sys.path.insert(0, {str(PROBES)!r}); "
        bare, recorder = add, add + "import grpo_doctor_probes"
        _run(recorder, env)
        added = [_run(recorder, env)[0] - _run(bare, env)[0] for _ in range(runs)]
        modules = _run(f"{recorder}; print(*sys.modules)", env)[1].split()
    roots = {module.partition(".")[0] for module in modules}
    strange = sorted(roots - sys.stdlib_module_names - {"grpo_doctor_probes", "__main__"})
    return statistics.median(added), strange


def _run(code: str, env: dict[str, str]) -> tuple[float, str]:
    began = time.perf_counter()
    command = [sys.executable, "-I", "-S", "-c", code]
    interpreter = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return (time.perf_counter() - began) * 1e3, interpreter.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    spans_ns, absent = measure(options.rounds)
    import_ms, strange = import_cost()
    failures = check(spans_ns, import_ms, strange)
    print(f"{'':<34}{'ns per span':>12}{'of phase':>10}")
    for name, nanoseconds in spans_ns.items():
        print(f"{name:<34}{nanoseconds:>12.0f}{nanoseconds / spans_ns[OURS]:>10.2f}")
    for name, reason in absent.items():
        print(f"{name:<34}{'absent':>12}  {reason}")
    print(f"importing the recorder adds {import_ms:.1f} ms; not of the standard library: "
          f"{', '.join(strange) or 'nothing'}")  # fmt: skip
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


def check(spans_ns: dict[str, float], import_ms: float, strange: list[str]) -> list[str]:
    """What is not as it is required."""
    failures = []
    for name, nanoseconds in spans_ns.items():
        allowed = nanoseconds * (MAX_RATIO_TO_TRL if name == TRL else 1.0)
        if name not in {OURS, EMPTY} and spans_ns[OURS] > allowed:
            failures.append(f"a phase costs more than {name}")
    if import_ms > MAX_IMPORT_MS:
        failures.append(f"importing the recorder adds more than {MAX_IMPORT_MS:.0f} ms")
    if strange:
        failures.append(f"the recorder imports {', '.join(strange)}")
    return failures


if __name__ == "__main__":
    sys.exit(main())
