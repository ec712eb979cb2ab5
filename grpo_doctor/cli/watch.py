"""`grpo-doctor watch`: a run while it happens, in the browser or the terminal."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor.cli.console import inform, say
from grpo_doctor.cli.output import STDOUT, given_path, write_bytes
from grpo_doctor.errors import OutputError, UsageError

if TYPE_CHECKING:
    from grpo_doctor.watch.alerts import Alerts
    from grpo_doctor.watch.snapshot import Watched

NAME = "watch"
SUMMARY = "follow a run while it happens, in the browser or the terminal"
DESCRIPTION = """\
Shows a run while it happens: its last steps, where its ranks are and since when, its GPUs, what the
watchdog found, and the report as of now. It reads the run directory; the job does not notice.

The page is served on this machine alone, at an address with a token.
"""
EPILOG = """\
examples:
  grpo-doctor watch                          the newest run; open the address that it prints
  grpo-doctor watch runs/7 --port 8700       this run, at a port that you forward by ssh
  grpo-doctor watch 4711                     the run of the process 4711
  grpo-doctor watch --tui                    in the terminal, until the run ends
  grpo-doctor watch --json                   what is known now, once
  grpo-doctor watch --alert https://hooks.slack.com/services/T0/B0/X   when it is stuck or ends
  grpo-doctor watch --tui --alert 'mail -s training me@example.org'

exit codes: 0 the run has ended (--tui), or --json; 2 wrong usage; 4 the port is in use; 130 Ctrl-C.
"""
_TICK_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "recording",
        metavar="RUN|PID",
        nargs="?",
        type=given_path,
        help="a run directory, or a process of the job; default: the newest run",
    )
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="port of the page; default: a free one"
    )
    parser.add_argument("--tui", action="store_true", help="show it in the terminal, by text")
    parser.add_argument("--json", action="store_true", help="print what is known now as JSON")
    parser.add_argument(
        "--alert",
        action="append",
        default=[],
        metavar="COMMAND|URL",
        help="when the job is stuck, has a severe finding or ends: POST JSON to the URL (Slack's "
        "webhooks take it), or run the command with the JSON on its standard input; may be given "
        "several times",
    )
    parser.set_defaults(interrupted="the watch has ended; a running job continues.")


def execute(options: argparse.Namespace) -> int:
    """Show the run until Ctrl-C; return the exit code."""
    if not 0 <= options.port < 1 << 16:
        raise UsageError(f"--port {options.port}: give a port from 1 to 65535.")
    from grpo_doctor.watch.alerts import Alerts  # noqa: PLC0415 - after usage errors
    from grpo_doctor.watch.snapshot import Watched, as_json  # noqa: PLC0415

    watched = Watched(_run_dir(options.recording))
    if options.json:
        write_bytes(as_json(watched.look()) + b"\n", STDOUT)
        return 0
    alerts = Alerts(options.alert, say)
    if options.tui:
        return _in_terminal(watched, alerts)
    return _in_browser(watched, alerts, options.port)


def _run_dir(given: Path | None) -> Path:
    from grpo_doctor.cli.report import newest_run  # noqa: PLC0415
    from grpo_doctor_probes.procs.procfs import read, variables  # noqa: PLC0415
    from grpo_doctor_probes.record.rundir import RANKS, RUN_DIR_VARIABLE, RUN_JSON  # noqa: PLC0415

    if given is None:
        return newest_run()
    if str(given).isdecimal() and not given.exists():
        try:
            found = variables(read(Path("/proc", str(given), "environ"))).get(RUN_DIR_VARIABLE)
        except FileNotFoundError:
            gone = f"there is no process {given}: it has ended, or runs on another host"
            raise UsageError(f"{gone}. Give the run directory instead.") from None
        except OSError as problem:
            raise UsageError(f"process {given}: {problem.strerror}.") from problem
        if not found:
            raise UsageError(
                f"process {given} is of no recorded run. Start jobs with `grpo-doctor run --`; "
                f"`grpo-doctor attach {given}` shows what this one does."
            )
        given = Path(found)
    if not (given / RANKS).is_dir() and not (given / RUN_JSON).exists():
        raise UsageError(f"{given} is not a run directory; `grpo-doctor run` prints it.")
    return given


def _in_browser(watched: Watched, alerts: Alerts, port: int) -> int:
    from grpo_doctor.watch.serve import Live, Server, forwarding  # noqa: PLC0415
    from grpo_doctor_reports.watch import live_page  # noqa: PLC0415

    live = Live(watched, alerts.hear)
    try:
        server = Server(live, live_page(live.now), port)
    except OSError as problem:
        live.close()
        raise OutputError(
            f"port {port}: {problem.strerror}. Give another --port, or none for a free one."
        ) from problem
    inform(f"watching {watched.run_dir}; Ctrl-C ends the watch, not the job")
    write_bytes(f"{server.url}\n".encode(), STDOUT)
    inform(f"from another machine: {forwarding(server.port)}, then open the same address there")
    live.start()
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        live.close()
        server.server_close()
    return 0


def _in_terminal(watched: Watched, alerts: Alerts) -> int:
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    from grpo_doctor_reports.watch import live_text  # noqa: PLC0415

    console = Console(file=sys.stdout)
    with Live(console=console, screen=console.is_terminal, auto_refresh=False) as screen:
        while True:
            now = watched.look()
            alerts.hear(now)
            screen.update(live_text(now, console.width), refresh=True)
            if not now.continues:
                break
            time.sleep(_TICK_S)
    if console.is_terminal:
        console.print(live_text(now, console.width))
    return 0
