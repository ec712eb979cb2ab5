"""Recorded programs in tests: started as processes of their own, read back from their files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor.trace.processes import NameTable, Recording
from grpo_doctor.trace.spanfile import SpanRecords, read_span_file
from grpo_doctor_probes.record import layout

PROBES = Path(__file__).parents[1] / "probes"
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PATIENCE_S = 120
KINDS = {
    layout.SPAN: "span",
    layout.STEP: "step",
    layout.COUNTER: "counter",
    layout.INSTANT: "instant",
    layout.COLLECTIVE: "collective",
    layout.COLLECTIVE_WAIT: "wait",
    layout.CUDA_SPAN: "cuda",
}


@dataclass(frozen=True)
class Row:
    """One record, its name and arguments spelled out."""

    kind: str
    name: str
    args: str
    start_ns: int
    end_ns: int
    value: float
    depth: int
    thread: int


def rows_of(content: SpanRecords) -> list[Row]:
    """Records in the order in which they were written."""
    table = NameTable()
    ids = table.translation(Recording("", content, {}))
    names = table.names.names
    rows = []
    for start, end, value, name, thread, depth, kind in content.records.tolist():
        name_id, args_id = ids[name]
        args = table.args.names[args_id] if args_id >= 0 else ""
        rows.append(Row(KINDS[kind], names[name_id], args, start, end, value, depth, thread))
    return rows


def read_rows(path: Path) -> list[Row]:
    """The records of a span file."""
    return rows_of(read_span_file(path))


def spans_file(run_dir: Path, rank: int = 0) -> Path:
    """The span file of a rank's first process."""
    return run_dir / "ranks" / f"{rank:05d}.spans"


def environment(run_dir: Path | None, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, recording into `run_dir`, with the recorder importable."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GRPO_DOCTOR", "RANK"))}
    env["PYTHONPATH"] = str(PROBES)
    if run_dir is not None:
        env["GRPO_DOCTOR_RUN_DIR"] = str(run_dir)
    return {**env, **(more or {})}


def start_job(
    code: str,
    run_dir: Path | None,
    *,
    python: str = sys.executable,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> subprocess.Popen[str]:
    """Starts `code` as a program; talk to it through its pipes."""
    return subprocess.Popen(
        [python, *options, "-c", textwrap.dedent(code), *arguments],
        env=environment(run_dir, env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_job(
    code: str,
    run_dir: Path | None,
    *,
    python: str = sys.executable,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Runs `code` to its end."""
    job = start_job(code, run_dir, python=python, options=options, env=env, arguments=arguments)
    out, err = job.communicate(timeout=PATIENCE_S)
    return subprocess.CompletedProcess(job.args, job.returncode, out, err)


def interpreter(version: str) -> str | None:
    """A Python of this version on this machine, if there is one that starts."""
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    candidates = [*map(str, pyenv), shutil.which(f"python{version}") or ""]
    check = f"import sys; assert sys.version.startswith({version!r} + '.')"
    for candidate in filter(None, candidates):
        probe = subprocess.run([candidate, "-c", check], capture_output=True, check=False)
        if probe.returncode == 0:
            return candidate
    return None


def write_recording(
    run_dir: Path,
    rank: int,
    spans: Sequence[tuple[str, int, int]] = (),
    *,
    opened: Sequence[tuple[str, int]] = (),
    start_ns: int = 1_000_000_000,
    closed_ns: int = 0,
    facts: Mapping[str, object] | None = None,
    pid: int = 4000,
    stem: str | None = None,
) -> Path:
    """A span file and a rank file made of bytes, with times as wanted.

    Args:
        spans: (name, start, end), on the process's own clock.
        opened: (name, start) of spans that never ended; "step" is step 0.
        facts: the rank file's content; None writes none.
    """
    folder = run_dir / "ranks"
    folder.mkdir(parents=True, exist_ok=True)
    names = list(dict.fromkeys([row[0] for row in spans] + [row[0] for row in opened]))
    header = bytearray(layout.HEADER_BYTES)
    sizes = (layout.HEADER_BYTES, layout.SEGMENT_BYTES, layout.SEGMENT_RECORDS)
    layout.FIXED.pack_into(
        header, 0, layout.MAGIC, layout.VERSION, *sizes, pid, rank, start_ns, 10**18 + start_ns
    )
    state = memoryview(header)[layout.STATE_OFFSET : layout.THREADS_OFFSET].cast("Q")
    state[layout.STATE_SEGMENTS] = 1
    state[layout.STATE_NAMES] = len(names)
    state[layout.STATE_CLOSED_NS] = closed_ns
    state[layout.STATE_STEP] = int("step" in names)
    end = layout.NAMES_OFFSET
    for name in names:
        encoded = name.encode()
        layout.NAME_LENGTH.pack_into(header, end, len(encoded))
        end += layout.NAME_LENGTH.size
        header[end : end + len(encoded)] = encoded
        end += len(encoded)
    first = layout.THREADS_OFFSET + layout.THREAD_INFO.size
    stack = memoryview(header)[first : first + 16 * layout.THREAD_DEPTH].cast("Q")
    for level, (name, began_ns) in enumerate(opened):
        kind = layout.STEP if name == "step" else layout.SPAN
        stack[2 * level] = began_ns
        stack[2 * level + 1] = names.index(name) + 1 | kind << layout.KIND_SHIFT
    segment = bytearray(layout.SEGMENT_BYTES)
    layout.SEGMENT_HEADER.pack_into(segment, 0, layout.SEGMENT_MAGIC, 1)
    for row, (name, began_ns, ended_ns) in enumerate(spans):
        offset = layout.SEGMENT_HEADER_BYTES + row * layout.RECORD_BYTES
        kind = layout.STEP if name == "step" else layout.SPAN
        layout.RECORD.pack_into(
            segment, offset, began_ns, ended_ns, 0.0, names.index(name) + 1, 0, 0, kind
        )
    path = folder / f"{stem or f'{rank:05d}'}.spans"
    path.write_bytes(header + segment)
    if facts is not None:
        path.with_suffix(".json").write_text(json.dumps(facts))
    return path
