"""`grpo-doctor diagnose`: what a log, a traceback or another pasted text shows."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from grpo_doctor.cli.console import say
from grpo_doctor.cli.output import STDOUT, given_path, write_bytes
from grpo_doctor.errors import UsageError

if TYPE_CHECKING:
    from grpo_doctor.diagnose.model import Answer

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
  kubectl logs trainer-0 | grpo-doctor diagnose -
  grpo-doctor diagnose train.log --json | jq .cause

exit codes: 0 a cause was found; 10 the text does not show one; 2 wrong usage, or nothing to read.
"""
UNKNOWN = 10
# Of a longer file its begin, with the settings, and its end, with the error.
_HEAD_BYTES, _TAIL_BYTES = 16 << 20, 48 << 20
_OTHERS = {
    "evidence.json.gz": "grpo-doctor attach --replay {}",
    "run.json": "grpo-doctor report {}",
    "trace.json": "grpo-doctor report {}",
    "trainer_state.json": "grpo-doctor report {}",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "files", metavar="FILE", type=given_path, nargs="+", help="text files; - is standard input"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def execute(options: argparse.Namespace) -> int:
    """Read, answer, print; return the exit code."""
    text = "\n".join(_text(path) for path in options.files)
    if not text.strip():
        raise UsageError(
            "there is no text to read. Give a log, or paste one: grpo-doctor diagnose -"
        )
    from grpo_doctor.diagnose import answer  # noqa: PLC0415 - after usage errors
    from grpo_doctor_probes.record.redact import redact_text  # noqa: PLC0415

    found = answer(redact_text(text))
    if options.json:
        write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n", STDOUT)
    else:
        write_bytes(_in_words(found).encode(), STDOUT)
    return 0 if found.cause else UNKNOWN


def _text(path: Path) -> str:
    if str(path) == STDOUT:
        return sys.stdin.buffer.read(_HEAD_BYTES + _TAIL_BYTES).decode("utf-8", "replace")
    inside = (name for name in _OTHERS if path.name == name or (path / name).exists())
    if name := next(inside, None):
        where = path if path.is_dir() or name != "evidence.json.gz" else path.parent
        raise UsageError(f"{path} is a recording, no text: {_OTHERS[name].format(where)}")
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            size = file.seek(0, 2)
            file.seek(max(len(head), size - _TAIL_BYTES))
            tail = file.read()
    except OSError as problem:
        raise UsageError(f"can't read {path}: {problem.strerror}.") from problem
    if len(head) + len(tail) < size:
        left_out = size - len(head) - len(tail)
        say(f"{path}: {left_out / 1e6:,.0f} MB between its begin and its end are not read")
    return (head + tail).decode("utf-8", "replace")


def _in_words(found: Answer) -> str:
    from grpo_doctor_probes.procs.printable import printable  # noqa: PLC0415

    known = "" if found.framework == "unknown" else f", of {found.framework}"
    lines = [f"{', '.join(found.kinds)}{known}"]
    if found.cause is None:
        lines += ["", "The cause is unknown: the text does not show it."]
    for finding in (found.cause, *found.others):
        if finding is None:
            continue
        where = f", line {finding.line}" if finding.line else ""
        lines += ["", f"{finding.says} ({finding.certainty}{where})"]
        if finding.quote:
            lines.append(f"    {printable(finding.quote, 300)}")
        lines += [f"  fix   {fix}" for fix in finding.fix]
    if found.shown:
        lines += ["", *(f"shown: {printable(fact, 600)}" for fact in found.shown)]
    if found.next_step:
        lines += ["", f"next: {found.next_step}"]
    return "\n".join(lines) + "\n"
