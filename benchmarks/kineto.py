"""Traces of the PyTorch profiler: which load, what that takes beside HTA, and how it grows.

Every trace of a folder is put to `grpo-doctor report`: it gives a page or refuses with a reason.
Then both say how busy the GPU was in the largest ones, each in a process of its own, in pairs whose
order alternates. Last, traces made in code, up to some size.

python -m benchmarks.kineto --traces FOLDER --peer PYTHON [--pairs 3] [--largest 3]
                            [--megabytes 125 250 500] [--json]
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kineto_files import write_trace
from benchmarks.measured import measured
from benchmarks.pairs import in_turn, mean_ratio
from grpo_doctor.errors import GrpoDoctorError
from grpo_doctor.importers.kineto.rank import merged, read_rank

# Issue 14's bounds against HTA, and what growth may add to proportion.
FASTER, LEANER, LINEAR = 3.0, 3.0, 1.25
HOW_TO_GET_TRACES = (
    "no trace there. HTA's are in its repository: git clone "
    "https://github.com/facebookresearch/HolisticTraceAnalysis, then --traces "
    "HolisticTraceAnalysis/tests/data"
)
HOW_TO_GET_HTA = (
    "has no HTA. python -m venv hta && hta/bin/pip install HolisticTraceAnalysis==0.5.0, then "
    "--peer hta/bin/python"
)
_ON_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
_OURS = """
import json, sys
from grpo_doctor.analysis import analyse
from grpo_doctor.importers.load import load
print(json.dumps({"busy": analyse(load(sys.argv[1])).gpu_busy}))
"""
_HTA = """
import json, logging, os, sys, warnings
warnings.filterwarnings("ignore"); logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
path = sys.argv[1]
told = TraceAnalysis(trace_files={0: path}, trace_dir=os.path.dirname(path))
table = told.get_temporal_breakdown(visualize=False)
print(json.dumps({"busy": 100 - float(table["idle_time_pctg"][0])}))
"""


def files_of(folder: Path) -> list[Path]:
    """The traces of a folder and of those in it, the largest first."""
    files = [p for p in folder.rglob("*") if p.suffix in (".json", ".gz") and p.is_file()]
    return sorted(files, key=lambda path: (-path.stat().st_size, path))


def answers(folder: Path, files: list[Path]) -> list[tuple[str, str]]:
    """Each file and what `report` made of it: `loads`, `refused: why`, or `WRONG: what`."""
    with tempfile.TemporaryDirectory() as pages:
        return [(str(path.relative_to(folder)), _answer(path, Path(pages))) for path in files]


def _answer(path: Path, pages: Path) -> str:
    command = [sys.executable, "-m", "grpo_doctor", "report", str(path), "-o"]
    report = subprocess.run(
        [*command, str(pages / "page.html")], capture_output=True, text=True, check=False
    )
    if "Traceback" in report.stderr:
        return f"WRONG: {report.stderr.strip().splitlines()[-1]}"
    if report.returncode:
        return f"refused: {' '.join(report.stderr.split())}"
    return _compared(path)


def _compared(path: Path) -> str:
    """Whether each device's busy time is that of a sweep over the file, read as one document."""
    try:
        file = read_rank(path)
    except GrpoDoctorError:
        return "loads"  # not the profiler's; another importer took it
    swept = dict(_swept(path))
    for number, device in file.devices.items():
        begins, ends = device.everything.merged(0)
        if abs(int((ends - begins).sum()) - swept[number]) > len(begins):
            return f"WRONG: device {number} was busy for {swept[number]} ns"
    return "loads" if swept.keys() == file.devices.keys() else "WRONG: other devices"


def _swept(path: Path) -> Iterator[tuple[int, int]]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = json.loads(file.read())
    events = content["traceEvents"] if isinstance(content, dict) else content
    work: dict[int, list[tuple[int, int]]] = {}
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in _ON_DEVICE:
            begin = round(event["ts"] * 1000)
            work.setdefault(event["pid"], []).append((begin, begin + round(event["dur"] * 1000)))
    for number, intervals in work.items():
        times = np.array(intervals)
        begins, ends = merged(times[:, 0], times[:, 1])
        yield number, int((ends - begins).sum())


def paired(path: Path, peer: str, pairs: int) -> dict[str, Any]:
    """What reading a trace and saying how busy its GPU was took both, pair by pair."""
    took: list[dict[str, dict[str, float]]] = []
    programs = {"ours": (sys.executable, _OURS), "hta": (peer, _HTA)}
    for pair in range(pairs):
        took.append({side: _reading(*programs[side], path) for side in in_turn(pair, programs)})
        sys.stderr.write(f"pair {pair + 1} of {pairs}, {path.name}\n")
    ratios = {
        unit: [pair["hta"][unit] / pair["ours"][unit] for pair in took]
        for unit in ("seconds", "cpu_seconds", "peak_mib")
    }
    return {"file": path.name, "file_mb": path.stat().st_size / 1e6, "took": took, "ratios": ratios}


def _reading(python: str, program: str, path: Path) -> dict[str, float]:
    return measured([python, "-c", program, str(path)])


def growth(megabytes: list[int]) -> list[dict[str, float]]:
    """What our side takes of traces made in code, smallest first."""
    sizes = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sorted(megabytes):
            path = Path(folder, f"made-{size}.json")
            events = write_trace(path, size * 1_000_000)
            sizes.append(
                {"megabytes": size, "events": events, **_reading(sys.executable, _OURS, path)}
            )
            path.unlink()
    return sizes


def _holds(result: dict[str, Any]) -> bool:
    holds = not any(answer.startswith("WRONG") for _, answer in result["answers"])
    for file in result["pairs"]:
        for unit, bound in (("seconds", FASTER), ("cpu_seconds", FASTER), ("peak_mib", LEANER)):
            holds &= bool(np.exp(np.mean(np.log(file["ratios"][unit]))) >= bound)
    if len(result["growth"]) > 1:
        small, large = result["growth"][0], result["growth"][-1]
        times = LINEAR * large["events"] / small["events"]
        holds &= large["cpu_seconds"] <= times * small["cpu_seconds"]
        holds &= large["peak_mib"] <= times * small["peak_mib"]
    return holds


def _say(result: dict[str, Any]) -> None:
    loaded = sum(answer == "loads" for _, answer in result["answers"])
    print(f"{len(result['answers'])} traces: {loaded} load")
    for name, answer in result["answers"]:
        if answer != "loads":
            print(f"  {name}: {answer}")
    for file in result["pairs"]:
        print(f"{file['file']}, {file['file_mb']:.1f} MB; HTA to ours:")
        for unit, ratios in file["ratios"].items():
            ours, hta = ([pair[side][unit] for pair in file["took"]] for side in ("ours", "hta"))
            print(
                f"  {unit:12} {mean_ratio(ratios)}; ours {np.median(ours):.2f}, "
                f"HTA {np.median(hta):.2f} in the median"
            )
    for size in result["growth"]:
        print(
            f"made, {size['megabytes']} MB, {size['events']:,} events: {size['seconds']:.2f} s, "
            f"{size['cpu_seconds']:.2f} s of processors, {size['peak_mib']:.0f} MiB"
        )


def main() -> int:
    """1 where a bound is not kept; 2 where there is nothing to measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kineto", description=__doc__)
    parser.add_argument("--traces", type=Path, required=True, help="a folder with traces")
    parser.add_argument("--peer", required=True, help="a Python that has HTA")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--largest", type=int, default=3, help="how many files are paired")
    parser.add_argument("--megabytes", type=int, nargs="*", default=[125, 250, 500])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    files = files_of(options.traces)
    if not files:
        parser.error(f"{options.traces}: {HOW_TO_GET_TRACES}")
    if not _has_hta(options.peer):
        parser.error(f"{options.peer} {HOW_TO_GET_HTA}")
    result = {
        "answers": answers(options.traces, files),
        "pairs": [paired(path, options.peer, options.pairs) for path in files[: options.largest]],
        "growth": growth(options.megabytes),
    }
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        _say(result)
    return 0 if _holds(result) else 1


def _has_hta(python: str) -> bool:
    try:
        program = subprocess.run([python, "-c", "import hta"], capture_output=True, check=False)
    except OSError:
        return False
    return program.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
