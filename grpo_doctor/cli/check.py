"""`grpo-doctor check`: whether a launch fits and is sane, before anything is started."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_doctor.cli.choosing import SEVERITIES, fail_on_code
from grpo_doctor.cli.output import STDOUT, document_json, write_bytes
from grpo_doctor.errors import UsageError
from grpo_doctor_probes.record.redact import redact_command

if TYPE_CHECKING:
    from grpo_doctor.cli.check_memory import Gpus
    from grpo_doctor.launches import Launch
    from grpo_doctor_reports.schema.check import CheckDocument

NAME = "check"
SUMMARY = "predict whether a launch fits in memory and can start, before you start it"
DESCRIPTION = """\
Reads a launch as you would type it and reports whether it fits in memory, what is wrong, and which
flags fix it. LAUNCH is the bundled trainer's arguments, a command or a bash script of ms-swift
(also `megatron rlhf`), TRL, verl or OpenRLHF, or a rollout server. It knows GRPO-type training;
for other kinds of training and other frameworks it reports "Not modeled". Nothing is started,
imported or fetched.
"""
EPILOG = """\
examples:
  grpo-doctor check --gpus 8xA100-80G -- train.sh
  grpo-doctor check --gpus 2xA100-80G -- --model Qwen/Qwen2.5-0.5B --dataset data.jsonl \\
      --per_device_train_batch_size 8
  grpo-doctor check --gpus 8x3090 --version ms-swift=3.4.0 -- train.sh
  grpo-doctor check --gpus 8xH100 --rollout-gpus 2xH100 --with rollout.sh -- train.sh
  grpo-doctor check --gpus 8xH100 --solve train.micro_batch -- train.sh
  grpo-doctor check --format github -- scripts/grpo.sh      one line per problem, in a pull request

exit codes: 0 it probably fits, it may fit, unknown or not modeled; 9 it probably does not fit, or
would not start; 2 wrong usage, no launch found; 4 the answer can't be written; 6 --fail-on.
"""
DOES_NOT_FIT = 9
_FORMATS = ("text", "github", "sarif")
_PACKAGES = ("ms-swift", "trl", "verl", "openrlhf", "vllm", "sglang", "transformers", "deepspeed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("launch", nargs="*", metavar="SCRIPT", help="same as LAUNCH after --")
    parser.add_argument(
        "--gpus", metavar="NxNAME", help="GPUs per host, such as 8xA100-80G (default: this host's)"
    )
    parser.add_argument(
        "--rollout-gpus", metavar="NxNAME", help="GPUs of the rollout server, if separate"
    )
    parser.add_argument("--nodes", type=int, metavar="N", help="hosts (default: the launch's or 1)")
    parser.add_argument("--host-ram", type=float, metavar="GIB", help="memory of each host")
    parser.add_argument(
        "--version",
        action="append",
        default=[],
        metavar="PACKAGE=VERSION",
        dest="versions",
        help="version of a package, such as ms-swift=4.6.0 (default: as installed here)",
    )
    parser.add_argument(
        "--with",
        action="append",
        default=[],
        metavar="COMMAND",
        dest="companions",
        help="another command of the same run, for example its rollout server",
    )
    parser.add_argument(
        "--solve", metavar="SETTING", help="also print the largest value of this setting that fits"
    )
    parser.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        help="exit with code 6 if any problem is at least this severe",
    )
    parser.add_argument("--json", action="store_true", help="as JSON (schema 2)")
    parser.add_argument("--format", choices=_FORMATS, default="text", help="text by default")


def execute(options: argparse.Namespace) -> int:
    """Read, judge, print; return the exit code."""
    job = redact_command([*options.launch, *(options.job_arguments or ())])
    if not job and options.job_arguments is None:
        raise UsageError("give a script, or a command after `--`: grpo-doctor check -- swift rlhf")
    if options.nodes is not None and options.nodes < 1:
        raise UsageError(f"--nodes {options.nodes}: give 1 or more.")
    versions = dict(_version(text) for text in options.versions)

    from grpo_doctor.cli.check_memory import Request  # noqa: PLC0415 - after usage errors
    from grpo_doctor.cli.check_words import render  # noqa: PLC0415
    from grpo_doctor.cli.checking import check  # noqa: PLC0415

    gpus = _gpus(options.gpus) if options.gpus else _present()
    environment = dict(os.environ)
    if options.gpus:  # they are of another machine than this shell's
        environment.pop("CUDA_VISIBLE_DEVICES", None)
    launch = _read(job, versions, environment, options.companions)
    request = Request(
        gpus=gpus,
        is_here=options.gpus is None,
        rollout_gpus=_gpus(options.rollout_gpus) if options.rollout_gpus else None,
        nodes=options.nodes,
        host_bytes=int(options.host_ram * 2**30) if options.host_ram else None,
        solve=options.solve,
    )
    document = check(launch, request)
    rendered = document_json(document) if options.json else render(document, options.format)
    write_bytes(rendered, STDOUT)
    return _exit_code(document, options.fail_on)


def _exit_code(document: CheckDocument, fail_on: str | None) -> int:
    if document.verdict in ("oom", "invalid"):
        return DOES_NOT_FIT
    return fail_on_code(fail_on, (flaw.severity for flaw in document.flaws))


def launch_here(arguments: Sequence[str]) -> tuple[Launch, Gpus | None]:
    """Return a launch in this shell, with what is installed and the GPUs that are present.

    Raises:
        UsageError: there is no command that is known here.
    """
    return _read(arguments, {}, dict(os.environ)), _present()


def _read(
    arguments: Sequence[str],
    versions: Mapping[str, str],
    environment: Mapping[str, str],
    companions: Sequence[str] = (),
) -> Launch:
    from grpo_doctor.launches import read  # noqa: PLC0415

    launch = read(arguments, environment=environment, cwd=Path.cwd(), versions=versions)
    installed = _installed(launch.framework, versions)
    if installed != versions:
        launch = read(arguments, environment=environment, cwd=Path.cwd(), versions=installed)
    added = tuple(
        read([text], environment=environment, cwd=Path.cwd(), versions=installed)
        for text in companions
        if shlex.split(text)
    )
    return replace(launch, companions=(*launch.companions, *added))


def _installed(framework: str, stated: Mapping[str, str]) -> dict[str, str]:
    """What was stated, and what is installed here where that says nothing else of the framework."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    installed: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    agrees = stated.get(framework, installed.get(framework)) == installed.get(framework)
    return {**installed, **stated} if agrees and framework in installed else dict(stated)


def _version(text: str) -> tuple[str, str]:
    from grpo_doctor.knobs.model import version_of  # noqa: PLC0415

    name, equals, number = text.partition("=")
    if not equals or version_of(number) is None:
        raise UsageError(f"--version {text}: give PACKAGE=VERSION, such as ms-swift=4.6.0.")
    names = {"swift": "ms-swift", "ms_swift": "ms-swift"}
    return names.get(name.strip(), name.strip()), number.strip().removeprefix("=")


def _gpus(text: str) -> Gpus:
    from grpo_doctor.cli.check_memory import Gpus  # noqa: PLC0415
    from grpo_doctor.memory import card_bytes  # noqa: PLC0415

    count, cross, name = text.lower().partition("x")
    if not (cross and count.strip().isdigit()):
        count, name = "1", text
    if int(count) < 1 or not name.strip():
        raise UsageError(f"{text}: give the number and name of the GPUs, such as 8xA100-80G.")
    shown = text[-len(name) :].strip()
    return Gpus(int(count), shown, card_bytes(shown))


def _present() -> Gpus | None:
    """Return the GPUs of this host by what the driver says of them; None where there are none."""
    from grpo_doctor.cli.check_memory import Gpus  # noqa: PLC0415
    from grpo_doctor.memory import card_bytes  # noqa: PLC0415

    folder = Path("/proc/driver/nvidia/gpus")
    try:
        texts = [(entry / "information").read_text() for entry in folder.iterdir()]
        lines = [line for text in texts for line in text.splitlines()]
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
        return Gpus(len(names), names[0], card_bytes(names[0])) if names else None
    except (OSError, UsageError):
        return None
