"""What each sample of a rollout did with its time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from grpo_doctor.trace.trajectories.around import Surroundings
from grpo_doctor.trace.trajectories.digest import digest
from grpo_doctor.trace.trajectories.table import read_table
from grpo_doctor_probes.record import layout
from grpo_doctor_reports.schema.trajectories import Trajectories


def read_trajectories(
    files: Iterable[tuple[Path, int, int]], around: Surroundings
) -> tuple[Trajectories | None, list[str], int]:
    """Read all files of a run; None where there are no trajectories.

    Args:
        files: each with what takes its clock to the trace's, and when its process was seen last,
            in ns. Those that are not there are of processes without trajectories.
        around: of the same run.

    Returns:
        What was read, what is wrong with the files, and how many rows were lost.
    """
    table, problems, lost = read_table(files)
    if not (table.kind == layout.TRAJECTORY).any():
        return None, problems, lost
    return digest(table, around), problems, lost
