"""`grpo-doctor report`: a trace or a run directory as one page, a digest, or JSON."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor.cli.choosing import add_rule_options, fail_on_code, price_of, selection_of
from grpo_doctor.cli.console import inform, say
from grpo_doctor.cli.output import STDOUT, check_output, document_json, given_path, write_bytes
from grpo_doctor.errors import OutputError, UsageError

if TYPE_CHECKING:
    from grpo_doctor.trace.model import Trace
    from grpo_doctor_reports.schema.report import HangEntry, ReportDocument

NAME = "report"
SUMMARY = "turn a recording into one offline HTML report, a terminal digest, or JSON"
DESCRIPTION = """\
Turns a recording into a report: where the step time went, what is wrong, and the flags that fix it.
RECORDING is a run directory, also of a run that is still running or was killed, or a
trace.json[.gz]. The default is the newest run in grpo-doctor-out.

It also reads files of jobs that ran without grpo-doctor: console logs of verl (`step:12 - ...`),
OpenRLHF (`Global step 12: {...}`), slime and miles (`perf 12: {...}`), NeMo RL, TRL and ms-swift
(`{'loss': ..., 'reward': ...}`), logging.jsonl and trainer_state.json. It reads folders of W&B
(wandb/run-*, also offline) and TensorBoard. It reads traces of the PyTorch profiler, one file or
a folder with one per rank. The report names what such a file does not contain.
"""
EPILOG = """\
examples:
  grpo-doctor report                                   the newest run; report.html in its folder
  grpo-doctor report grpo-doctor-out/20261121-100000   this run
  grpo-doctor report trace.json -o slow-run.html
  grpo-doctor report trace.json --format text          for the terminal
  grpo-doctor report trace.json --json | jq .findings  for programs
  grpo-doctor report train.log --format text           verl's or OpenRLHF's output
  grpo-doctor report trace.json --format markdown      for a comment on a pull request
  grpo-doctor report /data/runs/7 --ray                each node of the Ray cluster reads its files

  grpo-doctor report trace.json --select learning      one family of rules
  grpo-doctor report trace.json --fail-on high         for CI: exit code 6 for such a finding
  grpo-doctor report trace.json --price 2.49           waste in money, at 2.49 USD per GPU-hour

exit codes: 0 written; 2 wrong usage; 3 the recording can't be read; 4 the report can't be written;
6 written, and --fail-on found something.
"""
_FORMATS = ("html", "text", "json", "markdown", "github", "prometheus")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "recording",
        metavar="RECORDING",
        type=given_path,
        nargs="?",
        help="a run directory or a trace; default: the newest run in grpo-doctor-out",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to write the report; - for standard output"
    )
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        help="html (default), text or json; markdown for a comment; github for annotations of an "
        "action; prometheus for a textfile collector",
    )
    parser.add_argument("--json", action="store_true", help="same as --format json")
    group = parser.add_argument_group("a run on several hosts")
    group.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="processes that read samples here; default: the CPUs, from 64 MiB of samples on",
    )
    group.add_argument(
        "--ray",
        metavar="ADDRESS",
        nargs="?",
        const="auto",
        help="read the run's files on all nodes of this Ray cluster; RECORDING is their path there",
    )
    group.add_argument(
        "--remote", metavar="COMMAND", help="how grpo-doctor is started on the nodes"
    )
    parser.add_argument("--part", action="store_true", help=argparse.SUPPRESS)  # on a node
    # For `watch`: a run that goes on must not find files of ours in its folder.
    parser.add_argument("--read-only", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--findings-first", action="store_true", help=argparse.SUPPRESS)
    add_rule_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Read, analyze, render, write; return the exit code."""
    _check(options)
    form = "json" if options.json else options.format or "html"
    options.recording = options.recording or newest_run()
    if options.part:
        from grpo_doctor.cli.report_ray import answer  # noqa: PLC0415

        return answer(options.recording)
    if options.output is not None:
        check_output(options.output, options.recording, options.recording / "trace.json")

    from grpo_doctor.cli.rendering import digest, page, text_in  # noqa: PLC0415 - after usage errors
    from grpo_doctor.document import build_document  # noqa: PLC0415
    from grpo_doctor_reports.digest import verdict  # noqa: PLC0415

    selection, price = selection_of(options), price_of(options)
    trace, hangs = _read(options)
    document = build_document(trace, selection, price, hangs)
    output = options.output or (_page_path(options) if form == "html" else STDOUT)
    if form == "json":
        rendered = document_json(document)
    elif form == "text":
        rendered = digest(document, sys.stdout if output == STDOUT else None).encode()
    elif form == "html":
        rendered = _findings_line(document) * options.findings_first + page(document)
    else:
        rendered = text_in(form, document).encode()
    write_bytes(rendered, output)
    if output != STDOUT:
        inform(verdict(document))
        inform(f"wrote {output}")
    return fail_on_code(options.fail_on, (found.severity for found in document.findings))


def _findings_line(document: ReportDocument) -> bytes:
    import msgspec  # noqa: PLC0415

    from grpo_doctor_reports.schema.watch import FindingNow  # noqa: PLC0415

    found = [FindingNow(each.id, each.severity, each.title) for each in document.findings]
    return msgspec.json.encode(found) + b"\n"


def _check(options: argparse.Namespace) -> None:
    if options.json and options.format not in (None, "json"):
        raise UsageError("--json and --format contradict each other; give one of them.")
    if options.ray and options.recording is None and Path(options.ray).is_dir():
        raise UsageError(f"--ray {options.ray}: give the run first: report {options.ray} --ray")
    if options.jobs is not None and options.jobs < 1:
        raise UsageError(f"--jobs {options.jobs}: give 1 or more.")


def _read(options: argparse.Namespace) -> tuple[Trace, list[HangEntry]]:
    if options.ray:
        from grpo_doctor.cli.report_ray import gathered  # noqa: PLC0415

        return gathered(options.recording, options.ray, options.remote)
    from grpo_doctor.document.facts import hang_entries  # noqa: PLC0415
    from grpo_doctor.importers.load import load  # noqa: PLC0415

    trace = load(options.recording, options.jobs)
    if not options.read_only:
        _keep_trace(options.recording, trace)
    return trace, hang_entries(options.recording)


def newest_run() -> Path:
    """Return the run directory in grpo-doctor-out that was written last."""
    from grpo_doctor_probes.record.rundir import RUN_JSON  # noqa: PLC0415
    from grpo_doctor_probes.supervisor.runfile import DEFAULT_PARENT  # noqa: PLC0415

    runs = list(Path(DEFAULT_PARENT).glob(f"*/{RUN_JSON}"))
    if not runs:
        raise UsageError(f"{DEFAULT_PARENT}/ has no run; name one, or start one: grpo-doctor run")
    newest = max(runs, key=lambda path: path.stat().st_mtime).parent
    inform(f"the newest run: {newest}")
    return newest


def _keep_trace(recording: Path, trace: Trace) -> None:
    """A run whose supervisor was killed has no trace.json yet: it is written now."""
    from grpo_doctor_probes.record.rundir import TRACE_JSON  # noqa: PLC0415

    path = recording / TRACE_JSON
    of_others = trace.run.origin is not None  # their folder is read again each time
    if not recording.is_dir() or path.exists() or of_others or trace.run.exit.state == "running":
        return
    from grpo_doctor.trace.write import write_trace  # noqa: PLC0415

    try:
        write_trace(trace, path)
    except OutputError as problem:  # a read-only recording can still be reported on
        say(str(problem))


def _page_path(options: argparse.Namespace) -> str:
    elsewhere = options.ray and not options.recording.is_dir()
    return "report.html" if elsewhere else _beside(options.recording)


def _beside(recording: Path) -> str:
    if recording.is_dir():
        return str(recording / "report.html")
    stem = recording.name.removesuffix(".gz").removesuffix(".json")
    return str(recording.with_name("report.html" if stem == "trace" else f"{stem}.report.html"))
