"""`grpo-doctor diagnose`: what a log, a traceback or another pasted text shows."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from grpo_doctor.cli.console import say
from grpo_doctor.cli.output import STDOUT, given_path, write_bytes
from grpo_doctor.errors import UsageError

if TYPE_CHECKING:
    from grpo_doctor.diagnose.model import Answer, Finding

NAME = "diagnose"
SUMMARY = "say what a log, a traceback or NCCL's time-outs show, and what to do"
DESCRIPTION = """\
Reads what people paste when they ask for help: logs and tracebacks of any rank, NCCL's watchdog,
py-spy dumps of several ranks, kernel messages, metric rows. Says what the text is and the cause
where that follows, with the fix in the framework's own options and what to collect next. Where the
text does not show a cause, the answer is "unknown".
"""
EPILOG = """\
examples:
  grpo-doctor diagnose train.log
  grpo-doctor diagnose rank0.log rank1.log          several ranks as one text
  grpo-doctor diagnose slurm-logs/                  all logs of a folder, also of wandb/run-*
  kubectl logs trainer-0 | grpo-doctor diagnose -
  grpo-doctor diagnose train.log --json | jq .cause

exit codes: 0 a cause was found; 10 the text does not show one; 2 wrong usage, or nothing to read.
"""
UNKNOWN = 10
# Of a longer file its begin, with the settings, and its end, with the error.
_HEAD_BYTES, _TAIL_BYTES = 16 << 20, 48 << 20
_BLOCK_BYTES = 1 << 20
_LOGS, _MOST_LOGS = (".log", ".out", ".err", ".txt", ".stdout", ".stderr"), 256
_OTHERS = {
    "evidence.json.gz": "grpo-doctor attach --replay {}",
    "run.json": "grpo-doctor report {}",
    "trace.json": "grpo-doctor report {}",
    "trainer_state.json": "grpo-doctor report {}",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "files",
        metavar="FILE",
        type=given_path,
        nargs="+",
        help="text files, or folders of logs; - is standard input",
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def execute(options: argparse.Namespace) -> int:
    """Read, answer, print; return the exit code."""
    parts = [part for given in options.files for path in _files(given) for part in _parts(path)]
    text = "\n".join(part.text for part in parts)
    if not text.strip():
        raise UsageError(
            "there is no text to read. Give a log, or paste one: grpo-doctor diagnose -"
        )
    from grpo_doctor.diagnose import answer  # noqa: PLC0415 - after usage errors
    from grpo_doctor_probes.record.redact import redact_text  # noqa: PLC0415

    found = _located(answer(redact_text(text)), parts)
    if options.json:
        write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n", STDOUT)
    else:
        write_bytes(_in_words(found).encode(), STDOUT)
    return 0 if found.cause else UNKNOWN


def _files(path: Path) -> list[Path]:
    """The path itself, or the logs of a folder, by name."""
    inside = (name for name in _OTHERS if path.name == name or (path / name).exists())
    if name := next(inside, None):
        where = path if path.is_dir() or name != "evidence.json.gz" else path.parent
        raise UsageError(f"{path} is a recording, no text: {_OTHERS[name].format(where)}")
    if path.suffix == ".wandb" or "tfevents" in path.name:
        raise UsageError(f"{path} has metrics, no text: grpo-doctor report {path}")
    if not path.is_dir():
        return [path]
    logs = sorted(each for each in path.rglob("*") if each.suffix in _LOGS and each.is_file())
    if not logs:
        raise UsageError(f"{path} has no logs: none of its files ends in {', '.join(_LOGS)}.")
    if len(logs) > _MOST_LOGS:
        raise UsageError(
            f"{path} has {len(logs):,} logs; at most {_MOST_LOGS} are read. Name those of one run."
        )
    return logs


@dataclass(frozen=True, slots=True)
class _Part:
    """Whole lines of a file, from this line on, which counts from 1."""

    path: Path
    text: str
    first_line: int = 1


def _parts(path: Path) -> list[_Part]:
    """A file's text; of a long file its begin and its end."""
    if str(path) == STDOUT:
        read = sys.stdin.buffer.read(_HEAD_BYTES + _TAIL_BYTES)
        return [_Part(path, read.decode("utf-8", "replace"))]
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            left_out = max(0, file.seek(0, 2) - len(head) - _TAIL_BYTES)
            file.seek(len(head))
            lines = head.count(b"\n")
            for begin in range(0, left_out, _BLOCK_BYTES):
                lines += file.read(min(_BLOCK_BYTES, left_out - begin)).count(b"\n")
            tail = file.read()
    except OSError as problem:
        raise UsageError(f"can't read {path}: {problem.strerror}.") from problem
    if not left_out:
        return [_Part(path, (head + tail).decode("utf-8", "replace"))]
    say(f"{path}: {left_out / 1e6:,.0f} MB between its begin and its end are not read")
    return [
        _Part(path, head.decode("utf-8", "replace")),
        _Part(path, tail.decode("utf-8", "replace"), lines + 1),
    ]


def _located(found: Answer, parts: list[_Part]) -> Answer:
    """The same, with lines of the files instead of lines of all that was read."""
    several = len({part.path for part in parts}) > 1

    def at(finding: Finding) -> Finding:
        line = finding.line
        for part in parts:
            lines = part.text.count("\n") + 1
            if 0 < line <= lines:
                name = str(part.path) if several else ""
                return replace(finding, line=part.first_line + line - 1, file=name)
            line -= lines
        return finding

    cause = at(found.cause) if found.cause else None
    return replace(found, cause=cause, others=[at(each) for each in found.others])


def _in_words(found: Answer) -> str:
    from grpo_doctor_probes.procs.printable import printable  # noqa: PLC0415

    known = "" if found.framework == "unknown" else f", of {found.framework}"
    lines = [f"{', '.join(found.kinds)}{known}"]
    if found.cause is None:
        lines += ["", "The cause is unknown: the text does not show it."]
    for finding in (found.cause, *found.others):
        if finding is None:
            continue
        line = f"{finding.file}:{finding.line}" if finding.file else f"line {finding.line}"
        where = f", {line}" if finding.line else ""
        lines += ["", f"{finding.says} ({finding.certainty}{where})"]
        if finding.quote:
            lines.append(f"    {printable(finding.quote, 300)}")
        lines += [f"  fix   {fix}" for fix in finding.fix]
    if found.shown:
        lines += ["", *(f"shown: {printable(fact, 600)}" for fact in found.shown)]
    if found.next_step:
        lines += ["", f"next: {found.next_step}"]
    return "\n".join(lines) + "\n"
