"""`grpo-doctor run`: starts a job, records it, and reports on it when it ends."""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_doctor import __version__
from grpo_doctor.cli.console import inform, say
from grpo_doctor.cli.finish import Finished, finish
from grpo_doctor.cli.output import STDOUT, document_json, given_path, write_bytes
from grpo_doctor.errors import LaunchError, OutputError, UsageError

if TYPE_CHECKING:
    from grpo_doctor_probes.supervisor.job import Ended
    from grpo_doctor_probes.supervisor.launch import Launch
    from grpo_doctor_probes.supervisor.node import Node
    from grpo_doctor_probes.supervisor.runfile import RunFile

_OPEN_FILES = 65_536
_OTHER_HOSTS_S = 30.0
_LIMITS = (
    ("nproc", 1, sys.maxsize, "at least 1 rank is needed"),
    ("hz", 0.01, 100, "give a rate from 0.01 to 100 samples a second"),
    ("hang_after", 1, sys.maxsize, "give at least 1 second"),
    ("stop_after", 1, sys.maxsize, "give at least 1 step"),
    ("at_most", 1, sys.maxsize, "give at least 1 second"),
    ("max_mb", 1, sys.maxsize, "at least 1 MiB is needed"),
)

NAME = "run"
SUMMARY = "run your own command or the bundled trainer, record it, and write a report at the end"
DESCRIPTION = """\
Runs a training job and records phases of every rank, GPU and host samples, and metrics. When the
job ends, even by a crash or Ctrl-C, the trace and the report are in the run directory.

With nothing, or only flags (--model, --max_steps), after `--`, the bundled trainer is run with
torchrun. Anything else is run as your own command, unchanged. Phases, steps and settings of
ms-swift, TRL, verl and OpenRLHF jobs are recorded without any edit.
"""
EPILOG = """\
examples:
  grpo-doctor run                                   a tiny model learns sums, 2 ranks, no GPU
  grpo-doctor run -- --model Qwen/Qwen2.5-0.5B --dataset data.jsonl --per_device_train_batch_size 8
  grpo-doctor run --nproc 8 -- --model Qwen/Qwen2.5-0.5B --dataset data.jsonl --train_type lora
  grpo-doctor run -- bash train.sh                  your own command or launch script
  grpo-doctor run -o runs/1 -- torchrun --nproc_per_node 8 train.py
  grpo-doctor run --on-hang stop -- bash train.sh   if stuck: explain why, end it, exit 3
  grpo-doctor run --join runs/1 -- trl vllm-serve --model Qwen/Qwen2.5-0.5B
                                                    a rollout server of that run
  grpo-doctor run --hang-after 300 -- bash train.sh
                                                    a phase of 5 minutes is suspicious here
  grpo-doctor run --stop-after 20 -- bash train.sh  record 20 steps of it, then end it
  srun --ntasks-per-node=1 grpo-doctor run -o /shared/runs/1 -- bash train.sh
                                                    on each host of a Slurm job, one report
  grpo-doctor run -- --help                         the bundled trainer's flags

When a phase takes much longer than usual in this run, a watchdog inspects the job, as
`grpo-doctor attach` does. If the job is stuck, it prints the responsible rank and the reason, and
saves the evidence in RUN/hangs.

The exit code is the job's own. 3: the job was stuck and --on-hang stop ended it. 127: the job could
not be started. 4: the job ended well but the report could not be written; the recording is kept.
2: wrong usage.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "-o",
        "--output",
        type=given_path,
        metavar="DIR",
        help="the run directory; default: grpo-doctor-out/<date>-<time>",
    )
    parser.add_argument(
        "--join",
        type=given_path,
        metavar="RUN",
        help="the command is a rollout server (trl vllm-serve, swift rollout, vllm serve, "
        "SGLang) of the run in this folder, which may start later. That run's report shows "
        "the server as a separate role. The server gets no watchdog and no report",
    )
    parser.add_argument(
        "--nproc",
        type=int,
        metavar="N",
        help="ranks of the bundled trainer on this host; default: visible GPUs, else 2",
    )
    hosts = parser.add_argument_group(
        "several hosts",
        "Start the same command with the same -o on each host; srun, mpirun, and torchrun's "
        "options say which host this is. Otherwise:",
    )
    hosts.add_argument("--nnodes", type=int, metavar="N", help="number of hosts")
    hosts.add_argument("--node-rank", type=int, metavar="I", help="number of this host, from 0")
    hosts.add_argument(
        "--master-addr",
        metavar="HOST[:PORT]",
        help="host 0, for the bundled trainer; default: the first host of the Slurm step",
    )
    parser.add_argument(
        "--hz", type=float, default=10.0, help="samples of GPUs and host per second (default: 10)"
    )
    parser.add_argument(
        "--max-mb",
        type=int,
        metavar="N",
        help="largest recording of a rank in MiB; then old spans are dropped (default: 256)",
    )
    parser.add_argument(
        "--on-hang",
        choices=("report", "stop"),
        default="report",
        help="when the job is stuck: explain why (report, the default), or also end the job, "
        "first with SIGTERM (stop)",
    )
    parser.add_argument(
        "--hang-after",
        type=float,
        metavar="S",
        help="inspect a rank that has been in one phase for S seconds; default: 3 x the 99th "
        "percentile of that phase in this run, at least 35",
    )
    parser.add_argument(
        "--stop-after",
        type=int,
        metavar="STEPS",
        help="end the job, first with SIGTERM, after so many recorded steps; exit code 0",
    )
    parser.add_argument(
        "--at-most", type=float, metavar="S", help="end the job in the same way after S seconds"
    )
    parser.add_argument(
        "--no-watchdog",
        action="store_true",
        help="never look for hangs, and don't set the flight recorder's variables",
    )
    parser.add_argument(
        "--no-hooks",
        action="store_true",
        help="don't hook your command's Python: no phases, only samples and the watchdog",
    )
    parser.add_argument(
        "--no-check",
        action="store_true",
        help="skip the check of the launch (it never prevents the start)",
    )
    parser.add_argument("--no-live", action="store_true", help="no live line while the job runs")
    parser.add_argument("--no-report", action="store_true", help="only record; report later")
    parser.add_argument(
        "--json", action="store_true", help="at the end, print paths and summary as JSON"
    )


def execute(options: argparse.Namespace) -> int:
    """Run the job to its end; return the job's exit code."""
    arguments: list[str] = options.job_arguments or []
    _check(options, arguments)
    from grpo_doctor_probes.supervisor.launch import (  # noqa: PLC0415 - after --help
        CannotStartError,
        check_trainer_flags,
        plan,
    )
    from grpo_doctor_probes.supervisor.node import Node, first_host, this_node  # noqa: PLC0415
    from grpo_doctor_probes.supervisor.runfile import remove_if_unused  # noqa: PLC0415

    if arguments and arguments[0].startswith("-") and {"-h", "--help"} & set(arguments):
        from grpo_doctor_probes.supervisor.launch import TRAINER  # noqa: PLC0415

        return subprocess.call([sys.executable, "-m", TRAINER, "--help"])
    node = Node() if options.join else _given(options, this_node(arguments, os.environ))
    folder = _make_folder(options, node)
    try:
        launch = plan(
            arguments,
            folder,
            ranks=options.nproc,
            node=node,
            master=options.master_addr or first_host(os.environ),
            max_mb=options.max_mb,
            hooks=not options.no_hooks,
        )
        if launch.bundled and (code := check_trainer_flags(launch, arguments)):
            remove_if_unused(folder)
            return code
        if node.task:  # the host's first task records the host
            os.execvpe(launch.command[0], launch.command, launch.environment)  # noqa: S606
        finished = _run(options, launch, arguments, folder, node)
    except CannotStartError as problem:
        remove_if_unused(folder)
        raise LaunchError(str(problem)) from problem
    if options.json:
        try:
            write_bytes(document_json(finished.as_json()), STDOUT)
        except OutputError as problem:  # said, and the exit code stays the job's
            say(str(problem))
    return finished.exit_code


def _check(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    if options.join is not None:
        _check_join(options, arguments)
    for name, low, high, hint in _LIMITS:
        value = getattr(options, name)
        if value is not None and not low <= value <= high:
            raise UsageError(f"--{name.replace('_', '-')} {value:g}: {hint}.")
    if options.nproc is not None and arguments and not arguments[0].startswith("-"):
        raise UsageError(
            "--nproc is for the bundled trainer; pass the number of ranks to your own launcher, "
            f"for example `torchrun --nproc_per_node {options.nproc}`."
        )


def _check_join(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    if not arguments or arguments[0].startswith("-"):
        raise UsageError("--join: give the server's command after `--`.")
    if options.output is not None:
        raise UsageError("--join takes no -o: the server records into the run's own folder.")
    options.no_watchdog = options.no_live = True


def _given(options: argparse.Namespace, node: Node) -> Node:
    """Return the host's place as the options say it, else `node`."""
    number, count = options.node_rank, options.nnodes
    if number is None and count is None:
        return node
    count = node.count if count is None else count
    number = node.number if number is None else number
    if not 0 <= number < count:
        raise UsageError(
            f"--node-rank {number} of --nnodes {count}: give --nnodes N on every host, and "
            "--node-rank from 0 to N - 1."
        )
    return node.at(number, count)


def _make_folder(options: argparse.Namespace, node: Node) -> Path:
    from grpo_doctor_probes.supervisor.runfile import (  # noqa: PLC0415
        DEFAULT_PARENT,
        create_joined_dir,
        create_run_dir,
    )

    join: Path | None = options.join
    folder: Path | None = join or options.output
    if node.task and not folder and not node.name:
        raise UsageError("several tasks on this host: give all of them the same -o DIR.")
    try:
        return create_joined_dir(join) if join else create_run_dir(folder, node)
    except FileExistsError as problem:
        what_to_do = (
            "--join: {}. Give the run directory, the folder passed to that run's -o."
            if join
            else "-o: {}. Two runs can't share a folder; choose a new one."
        )
        raise UsageError(what_to_do.format(problem)) from problem
    except OSError as problem:
        where = Path(DEFAULT_PARENT).absolute()
        raise OutputError(
            f"can't make the run directory {folder or where}: {problem.strerror}. "
            f"Choose another with {'--join RUN' if join else '-o DIR'}."
        ) from problem


def _run(
    options: argparse.Namespace,
    launch: Launch,
    arguments: Sequence[str],
    folder: Path,
    node: Node,
) -> Finished:
    from grpo_doctor.cli.watching import Watching, with_flight_recorder  # noqa: PLC0415
    from grpo_doctor_probes.samplers.sampler import Sampling  # noqa: PLC0415
    from grpo_doctor_probes.samplers.server import named_servers, serving_at  # noqa: PLC0415
    from grpo_doctor_probes.supervisor.job import Job  # noqa: PLC0415
    from grpo_doctor_probes.supervisor.runfile import RunFile  # noqa: PLC0415

    if not options.no_check and options.join is None and not node.number:
        from grpo_doctor.cli.check_start import warning  # noqa: PLC0415

        line = warning(arguments, options.nproc)
        if line is not None:
            say(line)
    host = f" as host {node.number} of {node.count}" if node.count > 1 else ""
    inform(f"recording into {folder}{host}")
    options.no_live = options.no_live or node.number > 0
    facts: dict[str, Any] = {}
    if not options.no_watchdog:
        launch, facts["flight_recorder"] = with_flight_recorder(launch, arguments, folder)
    job = Job(launch)
    _allow_open_files()
    run_file = RunFile(folder, launch, arguments, job, __version__, node)
    _try_write(run_file, None, facts)
    servers = (serving_at if options.join else named_servers)(arguments)
    sampling = Sampling(folder, os.uname().nodename, job.pid, options.hz, servers=servers)
    sampling.start()
    watching = Watching(options, launch, arguments, folder, job)
    try:
        end = job.wait(lambda: watching.tick(sampling.latest()), every_s=0.5)
    finally:
        watching.close_line()
    sampling.stop()
    if sampling.problem:
        say(sampling.problem)
    aftermath = watching.close(end)
    _try_write(run_file, end, {**facts, **aftermath.facts})
    if options.join is not None:
        inform(f"the run's report shows what the server did: grpo-doctor report {options.join}")
        return Finished(folder, end.code, end.state, None, None, None, aftermath)
    if node.number:
        inform("host 0 writes the report of all hosts")
        return Finished(folder, end.code, end.state, None, None, None, aftermath)
    if node.count > 1:
        _wait_for_others(folder, node)
    return finish(folder, end, aftermath, report=not options.no_report)


def _wait_for_others(folder: Path, node: Node) -> None:
    from grpo_doctor_probes.record.rundir import NODES  # noqa: PLC0415
    from grpo_doctor_probes.supervisor.node import wait_for_others  # noqa: PLC0415

    missing = wait_for_others(folder, node, _OTHER_HOSTS_S, inform)
    if missing:
        say(
            f"the recordings of {missing} of {node.count} hosts are not complete in "
            f"{folder / NODES}. Without a shared disk, copy that folder of each host there, then "
            f"run: grpo-doctor report {folder}"
        )


def _allow_open_files() -> None:
    """Raise our own limit, once the job has the user's: each process of the job takes a few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _try_write(run_file: RunFile, end: Ended | None, facts: Mapping[str, Any]) -> None:
    try:
        run_file.write(end, facts)
    except OSError as problem:
        say(f"can't write run.json: {problem}; the recording continues without it")
