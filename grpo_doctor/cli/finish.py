"""After a job: merge the trace, find what is wrong, write the report, print the digest."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from grpo_doctor.cli.console import Quiet, inform, put, say
from grpo_doctor.cli.output import write_bytes
from grpo_doctor.errors import GrpoDoctorError, OutputError
from grpo_doctor_probes.record.rundir import FINDINGS_JSON, REPORT_HTML, TRACE_JSON

if TYPE_CHECKING:
    from grpo_doctor.cli.watching import Aftermath
    from grpo_doctor.document import ReportDocument
    from grpo_doctor_probes.supervisor.job import Ended


@dataclass(frozen=True, slots=True)
class Finished:
    """What a run left. Paths are None where they could not be written."""

    folder: Path
    exit_code: int
    state: str
    trace: Path | None
    report: Path | None
    document: ReportDocument | None
    aftermath: Aftermath

    def as_json(self) -> dict[str, Any]:
        """For `run --json`."""
        return {
            "schema": 1,
            "run_dir": str(self.folder),
            "trace": str(self.trace) if self.trace else None,
            "report": str(self.report) if self.report else None,
            "exit": {"state": self.state, "code": self.exit_code},
            "summary": self.document.summary if self.document else None,
            "findings": [f.id for f in self.document.findings] if self.document else [],
            "remarks": list(self.aftermath.remarks),
            "hangs": self.aftermath.facts.get("hangs", []),
            "deaths": self.aftermath.facts.get("deaths", []),
        }


def finish(folder: Path, end: Ended, aftermath: Aftermath, *, report: bool) -> Finished:
    """Write trace, findings and report. A failure here never hides the job's own exit code."""
    trace_path: Path | None = None
    document: ReportDocument | None = None
    problem = ""
    try:
        from grpo_doctor.trace.merge import merge  # noqa: PLC0415 - numpy only after the job
        from grpo_doctor.trace.write import write_trace  # noqa: PLC0415

        inform("merging the recording ...")
        write_trace(merge(folder, jobs=None), folder / TRACE_JSON)
        trace_path = folder / TRACE_JSON
        if report:
            inform("writing the report ...")
            document = _write_report(folder)
    except GrpoDoctorError as error:
        problem = str(error)
    except Exception as error:  # noqa: BLE001 - a bug of ours must not hide how the job ended
        problem = f"internal error: {error!r}{_keep_traceback(folder)}. Please report it."
    if problem:
        say(problem)
        if folder.exists():
            say(f"the recording is kept; once this is fixed, run: grpo-doctor report {folder}")
    report_path: Path | None = None
    if document is not None:
        report_path = folder / REPORT_HTML
        from grpo_doctor.cli.rendering import digest  # noqa: PLC0415

        if not Quiet.wanted:
            put(f"\n{digest(document, sys.stderr)}\n")
    _say_end(end, aftermath)
    _say_results(folder, trace_path, report_path)
    exit_code = end.code or (OutputError.exit_code if problem else 0)
    return Finished(folder, exit_code, end.state, trace_path, report_path, document, aftermath)


def _keep_traceback(folder: Path) -> str:
    path = folder / "internal-error.txt"
    try:
        path.write_text(traceback.format_exc())
    except OSError:
        return ""
    return f", see {path}"


def _write_report(folder: Path) -> ReportDocument:
    from grpo_doctor.cli.rendering import page  # noqa: PLC0415
    from grpo_doctor.document import build_document  # noqa: PLC0415
    from grpo_doctor.document.facts import hang_entries  # noqa: PLC0415
    from grpo_doctor.trace.read import read_trace  # noqa: PLC0415

    # From the file, not from memory: what `report trace.json` will show on another machine.
    document = build_document(read_trace(folder / TRACE_JSON), hangs=hang_entries(folder))
    findings = {
        "schema": document.schema,
        "findings": document.findings,
        "passed": document.passed,
        "not_run": document.not_run,
        "not_applicable": document.not_applicable,
        "rule_errors": document.rule_errors,
    }
    write_bytes(msgspec.json.format(msgspec.json.encode(findings)), str(folder / FINDINGS_JSON))
    write_bytes(page(document), str(folder / REPORT_HTML))
    return document


def _say_end(end: Ended, aftermath: Aftermath) -> None:
    for remark in aftermath.remarks:
        say(remark)
    if end.code:
        how = f"{end.state} ({end.signal})" if end.signal else end.state
        was = "was " if end.state in ("interrupted", "killed") else ""
        say(f"the job {was}{how}, exit code {end.code}")


def _say_results(folder: Path, trace: Path | None, report: Path | None) -> None:
    if trace is not None:
        inform(f"trace   {trace}")
    if report is not None:
        inform(f"report  {report}")
    elif trace is not None:
        inform(f"report it with: grpo-doctor report {folder}")
