"""What a span costs, next to its peers, and what importing the recorder costs.

Every kind of span is entered and left in short turns, one kind after another, a hundred times;
medians and ratios are of the same minutes on the same machine. Peers that are not installed are
left out: torch, trl (with transformers). Run: `python -m benchmarks.recorder [--rounds 100]`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from pathlib import Path

PROBES = Path(__file__).parents[1] / "probes"
SPANS_PER_TURN = 2000
OURS, EMPTY, TRL = "phase", "empty context manager", "TRL ProfilingContext"
MAX_RATIO_TO_TRL = 1.2
MAX_IMPORT_MS = 20.0
_WARM_UP_ROUNDS = 3
_EMPTY = """
class Empty:
    __slots__ = ("name",)
    def __init__(self, name): self.name = name
    def __enter__(self): pass
    def __exit__(self, kind, error, traceback): pass
"""
# What is made first, and the context manager.
KINDS = {
    EMPTY: (_EMPTY, "Empty('rollout')"),
    OURS: ("from grpo_doctor_probes import phase", "phase('rollout')"),
    # With the arguments that TRL's own code gives, and no tracker to report to.
    TRL: (
        "from trl.extras.profiling import ProfilingContext",
        "ProfilingContext(name='rollout', report_to=[], is_main_process=True, step=7)",
    ),
    "torch record_function": (
        "from torch.profiler import record_function",
        "record_function('rollout')",
    ),
}


def measure(rounds: int) -> dict[str, float]:
    """Median nanoseconds per span of each kind that is installed."""
    from grpo_doctor_probes import start, stop  # noqa: PLC0415 - its import is measured as well

    times: dict[str, list[float]] = {name: [] for name in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        assert start(folder)
        turns = {
            name: timeit.Timer(f"with {span}: pass", made) for name, (made, span) in KINDS.items()
        }
        for number in range(rounds + _WARM_UP_ROUNDS):
            for name, turn in list(turns.items()):
                try:
                    seconds = turn.timeit(SPANS_PER_TURN)
                except ImportError as problem:
                    print(f"{name} is left out: {problem}")
                    del turns[name]
                    continue
                if number >= _WARM_UP_ROUNDS:
                    times[name].append(seconds * 1e9 / SPANS_PER_TURN)
        stop()
    return {name: statistics.median(values) for name, values in times.items() if values}


def import_cost(runs: int = 15) -> float:
    """Milliseconds that importing the recorder adds to a bare Python."""
    bare = f"import sys; sys.path.insert(0, {str(PROBES)!r}); "
    recorder = bare + "import grpo_doctor_probes"
    _run_ms(recorder)
    return statistics.median(_run_ms(recorder) - _run_ms(bare) for _ in range(runs))


def _run_ms(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
    return (time.perf_counter() - began) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    spans_ns = measure(parser.parse_args().rounds)
    import_ms = import_cost()
    print(f"{'':<34}{'ns per span':>12}{'of phase':>10}")
    for name, nanoseconds in spans_ns.items():
        print(f"{name:<34}{nanoseconds:>12.0f}{nanoseconds / spans_ns[OURS]:>10.2f}")
    print(f"importing the recorder adds {import_ms:.1f} ms")
    failures = []
    for name, nanoseconds in spans_ns.items():
        allowed = nanoseconds * (MAX_RATIO_TO_TRL if name == TRL else 1.0)
        if name not in {OURS, EMPTY} and spans_ns[OURS] > allowed:
            failures.append(f"a phase costs more than {name}")
    if import_ms > MAX_IMPORT_MS:
        failures.append(f"importing the recorder adds more than {MAX_IMPORT_MS:.0f} ms")
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
