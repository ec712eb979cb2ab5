"""Starts a job, accompanies it and records how it ended. Never part of the job itself.

If this process dies the job continues: it holds nothing that the job needs, neither a pipe of its
output nor its terminal.
"""

from __future__ import annotations

from grpo_doctor_probes.supervisor.deaths import DeathWatch
from grpo_doctor_probes.supervisor.job import HUNG_CODE, Ended, Job
from grpo_doctor_probes.supervisor.launch import (
    CannotStartError,
    Launch,
    check_trainer_flags,
    plan,
)
from grpo_doctor_probes.supervisor.liveline import LiveLine
from grpo_doctor_probes.supervisor.members import Members
from grpo_doctor_probes.supervisor.node import Node, first_host, this_node, wait_for_others
from grpo_doctor_probes.supervisor.runfile import (
    RunFile,
    create_joined_dir,
    create_run_dir,
    remove_if_unused,
)
from grpo_doctor_probes.supervisor.standing import Headers
from grpo_doctor_probes.supervisor.watchdog import Hang, Watchdog

__all__ = [
    "HUNG_CODE",
    "CannotStartError",
    "DeathWatch",
    "Ended",
    "Hang",
    "Headers",
    "Job",
    "Launch",
    "LiveLine",
    "Members",
    "Node",
    "RunFile",
    "Watchdog",
    "check_trainer_flags",
    "create_joined_dir",
    "create_run_dir",
    "first_host",
    "plan",
    "remove_if_unused",
    "this_node",
    "wait_for_others",
]
