"""Attacks on what reads a recording: logs, traces, run directories, bundles and dumps."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

from tests.security.attack import Texts, by_name, in_file

_VERL_STEP = "step:1 - actor/loss:0.1 - critic/score/mean:0.2 - timing_s/step:10.0\n"
_TRL_STEP = "{'loss': 0.1, 'reward': 0.5}\n"
_LOGS: Texts = {
    "log-of-actors": (50_000, lambda n: f"{_VERL_STEP}(a{'pid=1' * n}"),
    "log-of-actors-with-blanks": (50_000, lambda n: _VERL_STEP + " " * n + "(a" + "(pid=1" * n),
    "log-of-verl-pairs": (50_000, lambda n: _VERL_STEP + "step:2 - a/b:1 - " + "a" * n + ":a" * n),
    "log-of-step-marks": (50_000, lambda n: _VERL_STEP + "step:1 - aa" * n),
    "log-of-numbers": (50_000, lambda n: _VERL_STEP + "step:3 - a/b:" + "a." * n + "\n" + "-" * n),
    "log-of-quotes": (50_000, lambda n: "Global step 1: {'a': 1, " + "'" * n + "}\n"),
    "log-of-nested-rows": (
        2000,
        lambda n: "{'loss': 0.1, 'reward': 0.5, 'x': " + "[" * n + "]" * n + "}\n",
    ),
    "log-of-open-rows": (50_000, lambda n: _TRL_STEP + "{'a': " * n + "\n"),
    "log-of-tables": (50_000, lambda n: _TRL_STEP + "| " * n + "\n" + "|-" * n),
    "log-of-progress-bars": (50_000, lambda n: _TRL_STEP + "1%|1/" * n + "\n"),
    "log-of-colours": (50_000, lambda n: _VERL_STEP + "\x1b[0" * n),
    "log-of-secrets": (
        20_000,
        lambda n: f"+ python3 -m verl.trainer.main_ppo a={'-eyJ' * n}\n{_VERL_STEP}",
    ),
    "log-of-long-commands": (
        20_000,
        lambda n: f"+ python3 -m verl.trainer.main_ppo {'a=1 ' * n}\n{_VERL_STEP}",
    ),
    "log-of-verl-steps": (
        2000,
        lambda n: "".join(f"step:{i} - a/l:0.1 - timing_s/step:1.0\n" for i in range(n)),
    ),
    "log-of-verl-configuration": (
        10_000,
        lambda n: f"{_VERL_STEP}{{'actor_rollout_ref'\n" + "a}\n" * n,
    ),
    "log-of-blanks-after-steps": (
        50_000,
        lambda n: _VERL_STEP.replace("critic/score", "c") + "step:1" + "\n" * n,
    ),
    "log-of-open-cells": (50_000, lambda n: _TRL_STEP + "<td>" * n + " " * n + "\n"),
    "log-of-blanks": (
        50_000,
        lambda n: (
            _TRL_STEP
            + "a{0}b\n{0}%|x\nexitcode{0}x\n<td>{0}</td></tr>\nstep:1 -{0}x\n".format(" " * n)
        ),
    ),
    "log-of-digits": (
        50_000,
        lambda n: (
            _TRL_STEP
            + "{0}%|x\n{{'loss': 0.1, 'reward': {0}x}}\nGlobal step 2: {{'a': {0}x}}\n".format(
                "1" * n
            )
        ),
    ),
}
_PASTED: Texts = {
    "pasted-errors-of-a-line": (20_000, lambda n: "Error: " * n),
    "pasted-blanks": (50_000, lambda n: " " * n + "x"),
    "pasted-ranks": (50_000, lambda n: "[rank0]: " * n),
    "pasted-frames": (20_000, lambda n: '  File "a.py", line 1, in f\n' * n + "ValueError: x"),
    "pasted-fields": (50_000, lambda n: 'examples["a"]\n' * n),
    "pasted-paths": (50_000, lambda n: "a/" * n + ".py:1, in f\n" + "a." * n),
}


def _pack(path: Path, head: bytes, piece: bytes, times: int) -> None:
    """A small file that unpacks to `times` pieces."""
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(head)
        for _ in range(times):
            file.write(piece)


def _tar(folder: Path, content: bytes) -> list[str]:
    (folder / "b.tar.gz").write_bytes(gzip.compress(content))
    return ["attach", "--replay", "b.tar.gz"]


def _gzip_without_line_ends(folder: Path, size: int) -> list[str]:
    _pack(folder / "a.log.gz", _VERL_STEP.encode(), b"a" * (1 << 20), size)
    return ["report", "a.log.gz", "--format", "text"]


def _trace_without_line_ends(folder: Path, size: int) -> list[str]:
    head = b'{"grpoDoctor": {"schema": 1},\n"traceEvents": [\n'
    _pack(folder / "trace.json.gz", head, b" " * (1 << 20), size)
    return ["report", "trace.json.gz", "--format", "text"]


def _kineto_without_events(folder: Path, size: int) -> list[str]:
    head = b'{"schemaVersion": 1, "traceEvents": ['
    _pack(folder / "k.pt.trace.json.gz", head, b'{"a":' * 200_000, size)
    return ["report", "k.pt.trace.json.gz", "--format", "text"]


def _trainer_state_depth(folder: Path, size: int) -> list[str]:
    (folder / "trainer_state.json").write_text('{"log_history": ' + "[" * size)
    return ["report", "trainer_state.json", "--format", "text"]


def _run_depth(folder: Path, size: int) -> list[str]:
    (folder / "run").mkdir()
    (folder / "run" / "run.json").write_text('{"a":' * size)
    (folder / "run" / "job.json").write_text("[" * size)
    return ["report", "run", "--format", "text"]


def _spans_without_length(folder: Path, size: int) -> list[str]:
    run = folder / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / "metrics.jsonl").write_text('{"step": 1}\n' * size)
    return ["report", "run", "--format", "text"]


def _tar_with_giant_header(folder: Path, size: int) -> list[str]:
    info = tarfile.TarInfo("x")
    info.pax_headers = {"comment": "x" * size}
    return _tar(folder, info.tobuf(tarfile.PAX_FORMAT))


def _tar_with_pax_of_digits(folder: Path, size: int) -> list[str]:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, size
    return _tar(folder, info.tobuf(tarfile.USTAR_FORMAT) + b"1" * size)


def _tar_with_long_name(folder: Path, size: int) -> list[str]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("x/" * (size // 2)))
    return _tar(folder, buffer.getvalue())


def _tar_with_many_entries(folder: Path, size: int) -> list[str]:
    return _tar(folder, tarfile.TarInfo("x").tobuf() * size)


def _tar_with_many_long_names(folder: Path, size: int) -> list[str]:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1
    return _tar(folder, (info.tobuf(tarfile.USTAR_FORMAT) + b"a" * 512) * size)


def _evidence_that_unpacks(folder: Path, size: int) -> list[str]:
    _pack(folder / "evidence.json.gz", b"", b" " * (1 << 20), size)
    return ["attach", "--replay", "evidence.json.gz"]


def _evidence_depth(folder: Path, size: int) -> list[str]:
    (folder / "evidence.json.gz").write_bytes(gzip.compress(b'{"schema": 1, "a": ' + b"[" * size))
    return ["attach", "--replay", "evidence.json.gz"]


def _dumps_of_nested_lists(folder: Path, size: int) -> list[str]:
    (folder / "d").mkdir()
    (folder / "d" / "nccl_trace_rank_0").write_bytes(b"\x80\x02" + b"]" * size + b"a" * size + b".")
    (folder / "d" / "nccl_trace_rank_1").write_text(json.dumps({"version": "2.10"}) + "[" * size)
    return ["attach", "--dumps", "d"]


RECORDINGS = [
    *in_file("a.log", "report a.log --format text", _LOGS),
    *in_file("a.log", "diagnose a.log", _PASTED),
    *by_name(
        {
            _gzip_without_line_ends: 20,
            _trace_without_line_ends: 20,
            _kineto_without_events: 20,
            _trainer_state_depth: 2000,
            _run_depth: 2000,
            _spans_without_length: 50_000,
            _tar_with_giant_header: 1 << 20,
            _tar_with_pax_of_digits: 1 << 20,
            _tar_with_long_name: 1 << 20,
            _tar_with_many_entries: 20_000,
            _tar_with_many_long_names: 20_000,
            _evidence_that_unpacks: 20,
            _evidence_depth: 2000,
            _dumps_of_nested_lists: 20_000,
        }
    ),
]
