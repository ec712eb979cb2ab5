"""`attach --dumps`: the flight-recorder files of a job that may be gone."""

from __future__ import annotations

import math
from pathlib import Path

from grpo_doctor.cli.console import inform
from grpo_doctor.errors import NoJobError, UsageError
from grpo_doctor.hang.collection.bundle.packing import ARCHIVES, EVIDENCE
from grpo_doctor.hang.collection.examine import examine_dumps
from grpo_doctor.hang.dumps.model import DumpProblem
from grpo_doctor.hang.model import view
from grpo_doctor.hang.model.view import JobView
from grpo_doctor_probes.evidence import Evidence
from grpo_doctor_reports.formatting import PROSE_LIMIT, clean

_MOST_NAMED = 40
_SAID_FROM_MB, _MB_PER_S = 50.0, 8.0
_FILE = "file:"


def dumped(folder: Path) -> JobView:
    """Return the job that the dump files of `folder`, or this one file, show.

    Raises:
        UsageError: there is no such folder, or no file in it is a dump.
        NoJobError: the folder is empty.
    """
    if not folder.exists():
        raise UsageError(
            f"--dumps {folder}: there is no such folder. Give the folder of the job's dumps "
            "(TORCH_FR_DUMP_TEMP_FILE without the file name)."
        )
    evidence = examine_dumps(folder)
    if not evidence.dumps:
        raise NoJobError(
            f"--dumps {folder}: no flight-recorder file in it. Torch writes these files if "
            "TORCH_NCCL_DUMP_ON_TIMEOUT=1 and TORCH_FR_BUFFER_SIZE=2000 are set."
        )
    _tell_of_a_wait(evidence)
    job_view = view.build(evidence)
    if not job_view.recordings.ranks:
        raise UsageError(_nothing_usable(folder, job_view.recordings.problems))
    return job_view


def _tell_of_a_wait(evidence: Evidence) -> None:
    """Print the expected time of a long read: recorders of a thousand ranks take minutes."""
    megabytes = sum(len(dump.data) for dump in evidence.dumps) / 1e6
    if megabytes >= _SAID_FROM_MB:
        seconds = math.ceil(megabytes / _MB_PER_S)
        inform(f"reading {len(evidence.dumps):,} dumps, {megabytes:,.0f} MB: about {seconds} s ...")


def _nothing_usable(folder: Path, problems: tuple[DumpProblem, ...]) -> str:
    if any(problem.source.endswith((EVIDENCE, *ARCHIVES)) for problem in problems):
        return f"--dumps {folder}: that is a bundle of attach. Give it to --replay."
    lines = [f"--dumps {folder}: no file there is a usable flight-recorder dump."]
    lines += [f"  {_line(problem)}" for problem in problems[:_MOST_NAMED]]
    if len(problems) > _MOST_NAMED:
        lines.append(f"  and {len(problems) - _MOST_NAMED} more")
    return "\n".join(lines)


def _line(problem: DumpProblem) -> str:
    file = problem.source.removeprefix(_FILE)
    return clean(problem.what if file in problem.what else f"{file} {problem.what}", PROSE_LIMIT)
