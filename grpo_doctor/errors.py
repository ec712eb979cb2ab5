"""The tool's errors: one base class, and each message says what to do next.

::

    GrpoDoctorError            exit code 1
    ├── UsageError             exit code 2: the command line asks for something impossible
    ├── TraceError             exit code 3: a trace or run directory can't be read
    ├── OutputError            exit code 4: the result can't be written
    ├── PermissionNeededError  exit code 4: the job is there, its processes can't be read
    ├── NoJobError             exit code 5: there is no such job
    └── LaunchError            exit code 127: the job can't be started

`attach` ends with 3 when the job is stuck or dead, so what it can't read is a UsageError there.
"""

from __future__ import annotations


class GrpoDoctorError(Exception):
    """Something the user can act on. `str(error)` is the whole message, the next step included."""

    exit_code = 1


class UsageError(GrpoDoctorError):
    """The command line asks for something impossible."""

    exit_code = 2


class TraceError(GrpoDoctorError):
    """A trace or a run directory can't be read; the message names the file and the reason."""

    exit_code = 3


class OutputError(GrpoDoctorError):
    """A result can't be written; the message names the file and the reason."""

    exit_code = 4


class PermissionNeededError(GrpoDoctorError):
    """The job was found and none of its processes may be looked at; the message has the remedy."""

    exit_code = 4


class NoJobError(GrpoDoctorError):
    """No training job on this host, or the process asked for is none; the message says more."""

    exit_code = 5


class LaunchError(GrpoDoctorError):
    """The job can't be started; the message names what is missing."""

    exit_code = 127  # as env, nohup and timeout say it
