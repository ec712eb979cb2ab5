"""What the worst input within each reader's limits costs: `python -m tests.security.at_limits`.

`--write docs/safety.md` puts the table there. Seconds are of CPU, starting included; megabytes are
the most that were resident at once.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from grpo_doctor import bounded
from grpo_doctor.bounded import Bound
from grpo_doctor.hang.collection.bundle import packed
from grpo_doctor_probes.evidence import Evidence, Job
from tests.security.attack import Write
from tests.security.measured import cost

_MOST_S = 600.0
_BEGIN, _END = "<!-- at limits: begin -->\n", "<!-- at limits: end -->\n"
_CHECK = ("check", "--gpus", "8xA100-80G", "--")
_SWIFT = ("swift", "rlhf", "--rlhf_type", "grpo")
_CONFIG = (*_CHECK, *_SWIFT, "--config")
_REPORT = ("report", "--format", "text")
_TRL = "from trl import GRPOTrainer\n"
_OTHER_LINE = "(TaskRunner pid=1) INFO loading 1/8 of it, 3.5 s\n"
_VERL = (
    "(TaskRunner pid=1) step:{} - actor/loss:0.1 - critic/score/mean:0.2 - timing_s/step:10.0 - "
    "timing_s/gen:5.0\n"
)
_TINY_STEPS = """
import sys, grpo_doctor_probes as g
for number in range(int(sys.argv[1])):
    with g.step(number), g.phase("rollout"): pass
"""
_KINETO = """{"schemaVersion": 1, "baseTimeNanoseconds": 1,
"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [
{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 2, "dur": 1, "args": {
"a": [%s1]}
}
]
}"""


def _of(name: str, command: tuple[str, ...], text: Callable[[int], str]) -> Write:
    """One file of a size, read by a command."""

    def write(folder: Path, size: int) -> list[str]:
        (folder / name).write_text(text(size))
        return [*command, name]

    return write


def _options(folder: Path, count: int) -> list[str]:
    del folder
    return [*_CHECK, *_SWIFT, *(f"--option_{i}" for i in range(count - 9))]


def _spans(folder: Path, size: int) -> list[str]:
    environment = {**os.environ, "GRPO_DOCTOR_RUN_DIR": str(folder / "run")}
    command = [sys.executable, "-c", _TINY_STEPS, str(size // 64)]
    subprocess.run(command, env=environment, check=True)
    return [*_REPORT, "run"]


def _bundle(folder: Path, size: int) -> list[str]:
    text = gzip.decompress(packed(Evidence(Job("a", (), 1), 1_795_000_000_000_000_000)))
    head, mark, tail = text.partition(b'"problems":[')
    items = b'{"what":""},' * ((size - len(text)) // 12 - 9) + b'{"what":""}'
    (folder / "evidence.json.gz").write_bytes(gzip.compress(head + mark + items + tail, 1))
    return ["attach", "--replay", "evidence.json.gz"]


def _dumps(folder: Path, count: int) -> list[str]:
    (folder / "d").mkdir()
    head = b"\x80\x02}(X\x07\0\0\0versionX\x04\0\0\x002.10X\x07\0\0\0entries]("
    (folder / "d" / "nccl_trace_rank_0").write_bytes(head + b"}" * (count - 9) + b"eu.")
    return ["attach", "--dumps", "d"]


# Where a limit is more than a machine has time for, a part of it, as the table says.
_WORST: tuple[tuple[Bound, str, Write, int], ...] = (
    (bounded.SCRIPT, "", _of("a.sh", _CHECK, lambda n: "A=1\n" * (n // 4)), bounded.SCRIPT.bytes),
    (bounded.OPTIONS, "", _options, bounded.OPTIONS.items),
    (
        bounded.PYTHON, "",
        _of("a.py", (*_CHECK, "accelerate", "launch"), lambda n: _TRL + "a(b)\n" * (n // 5 - 9)),
        bounded.PYTHON.bytes,
    ),
    (
        bounded.YAML, "",
        _of("a.yaml", _CONFIG, lambda n: "a:\n" + "- [a, {b: 1}]\n" * (n // 5 - 9)),
        bounded.YAML.items,
    ),
    (
        bounded.JSON, "",
        _of("d.json", _CONFIG, lambda n: '{"a": [' + "[]," * (n // 3 - 9) + "1]}"),
        bounded.JSON.bytes,
    ),
    (
        bounded.LOG_LINE, "",
        _of("a.log", _REPORT, lambda n: _VERL.format(1) + "{'a': " * (n // 6 - 20)),
        bounded.LOG_LINE.bytes,
    ),
    (
        bounded.LOG, ", 128 MiB of it",
        _of("a.log", _REPORT, lambda n: _VERL.format(1) + _OTHER_LINE * (n // len(_OTHER_LINE))),
        128 << 20,
    ),
    (
        bounded.LOG, ", 100,000 steps",
        _of("a.log", _REPORT, lambda n: "".join(map(_VERL.format, range(n)))),
        100_000,
    ),
    (
        bounded.EVENT, "",
        _of("a.pt.trace.json", _REPORT, lambda n: _KINETO % ("[]," * (n // 3 - 99))),
        bounded.EVENT.bytes,
    ),
    (bounded.SPANS, ", 32 MiB in steps of 64 bytes", _spans, 32 << 20),
    (bounded.BUNDLE, "", _bundle, bounded.BUNDLE.bytes),
    (bounded.DUMP, "", _dumps, bounded.DUMP.items),
)  # fmt: skip


def _row(bound: Bound, part: str, write: Write, size: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        used = cost(write(Path(name), size), Path(name), _MOST_S)
    assert used.code >= 0, f"{bound.name}: ended by signal {-used.code}"
    return f"| {bound.name}{part} | {used.seconds:.0f} | {used.peak_bytes >> 20:,} |\n"


def main() -> int:
    """Prints the table, or writes it."""
    parser = argparse.ArgumentParser(prog="python -m tests.security.at_limits", description=__doc__)
    parser.add_argument("--write", type=Path)
    page = parser.parse_args().write
    table = "| input | CPU s | MiB |\n|---|---:|---:|\n"
    for worst in _WORST:
        table += _row(*worst)
        sys.stdout.write(table.splitlines()[-1] + "\n")
        sys.stdout.flush()
    if page:
        before, rest = page.read_text().split(_BEGIN)
        page.write_text(f"{before}{_BEGIN}{table}{_END}{rest.split(_END)[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
