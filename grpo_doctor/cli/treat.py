"""`grpo-doctor treat`: tries what a recording advises in short runs, and keeps what gains."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from grpo_doctor.cli.console import inform
from grpo_doctor.cli.output import STDOUT, add_output, document_json, write_bytes
from grpo_doctor.errors import GrpoDoctorError, UsageError
from grpo_doctor_probes.record.redact import redact_command

if TYPE_CHECKING:
    from grpo_doctor.launches import Launch
    from grpo_doctor_reports.schema.treat import TreatDocument

NAME = "treat"
SUMMARY = "try the changes that a recording advises in short runs, and keep what proves a gain"
DESCRIPTION = """\
Records a few steps of the command, then tries the changes of the report one after the other in
short runs: before, after, after, before. A change is kept if the whole 95% interval of the paired
difference is a gain above 2%, and losses and rewards agree as `compare` judges them. The result
is a command, or a patch of your script, and a card with each trial. Your files stay as they are.
"""
EPILOG = """\
examples:
  grpo-doctor treat -- bash train.sh                 30 minutes of trials
  grpo-doctor treat --budget 2h -o treated -- torchrun --nproc_per_node 8 train.py --beta 0
  grpo-doctor treat -o treated -- bash train.sh      the same folder: it continues
  grpo-doctor treat -o treated --write -- bash train.sh
                                                     also change train.sh as the result says
  grpo-doctor treat --allow algorithm -- ...         also batch sizes, lengths and learning rates
  grpo-doctor treat --dry-run -- bash train.sh       what a trial would be; nothing is started

Changes are options of the command. Each trial is a run of its own, with its own output folder, and
ends after so many steps. Ctrl-C ends with the best so far.

exit codes: 0 ended, with or without a change that is kept; 2 wrong usage, or the command takes no
options; 4 a result can't be written; 8 nothing could be measured, for example no step was recorded;
9 it does not fit or would not start, by `check`; 127 it can't be started; 130 Ctrl-C.
"""
DOES_NOT_FIT, _INTERRUPTED = 9, 130
_CARD = "treat.json"
_UNITS = {"s": 1, "m": 60, "h": 3600, "": 60}


class DoesNotFitError(GrpoDoctorError):
    """`check` says that the command does not fit, or would not start."""

    exit_code = DOES_NOT_FIT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--budget", type=_seconds, default=1800.0, metavar="TIME",
        help="30m (default), 90s, 2h: no trial begins that would end later",
    )  # fmt: skip
    parser.add_argument(
        "--goal", choices=("step-time", "tokens"), default="step-time",
        help="seconds per step (default), or per completion token",
    )  # fmt: skip
    parser.add_argument(
        "--allow", choices=("algorithm",), action="append", default=[],
        help="also try changes of the math: batch, generations, lengths, learning rate",
    )  # fmt: skip
    add_output(
        parser, "DIR", "folder of the trials and the card; one of an earlier `treat` of this "
        "command is continued; default: grpo-doctor-out/treat-<date>-<time>", "--run-dir",
    )  # fmt: skip
    parser.add_argument(
        "--write", action="store_true", help="at the end, apply the patch to your script"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be done; start nothing"
    )
    parser.add_argument("--json", action="store_true", help="print the card as JSON (schema 1)")


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text}: give a time such as 30m, 90s or 2h")
    return float(found[1]) * _UNITS[found[2]]


def execute(options: argparse.Namespace) -> int:
    """Check, try, print the card; return the exit code."""
    if options.job_arguments is None:
        raise UsageError("give the command after `--`: grpo-doctor treat -- bash train.sh")
    from grpo_doctor.cli.check import launch_here  # noqa: PLC0415 - after usage errors
    from grpo_doctor.treat.session import Doctor, Session  # noqa: PLC0415

    words: list[str] = options.job_arguments
    launch, _ = launch_here(words)
    _require_flags(launch, words)
    refusal = _refusal(words)
    if refusal is not None:
        raise DoesNotFitError(f"nothing was started: {refusal}")
    folder = options.output or Path("grpo-doctor-out") / time.strftime("treat-%Y%m%d-%H%M%S")
    document = _begun(options, folder, launch, words)
    doctor = Doctor(
        read=lambda given: launch_here(given)[0],
        refusal=_refusal,
        keep=lambda card: _keep(folder, card),
        say=inform,
    )
    session = Session(folder, words, launch, doctor, document)
    if options.dry_run:
        return _show(options, session.plan())
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _interrupt)
    code = 0
    try:
        document = session.run()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    finally:
        inform(f"card    {folder / 'treat.html'}")
    if options.write and not code and (text := session.script_text()):
        path = Path(session.document.script)
        write_bytes(text.encode(), str(path))
        inform(f"changed {path}")
    return _show(options, session.document) or code


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _require_flags(launch: Launch, words: Sequence[str]) -> None:
    """Raise UsageError where no option of the command would reach the trainer."""
    from grpo_doctor.launches.place import place_of  # noqa: PLC0415

    if launch.role != "train":
        raise UsageError("this command serves rollouts; give the command that trains.")
    if launch.outside is not None:
        raise UsageError(f"no change is known for this command: {launch.outside}.")
    place = place_of(words, launch.framework, (Path.cwd(),), time.time_ns())
    if place.form != "flag" or place.where.startswith("if "):
        where = place.where or "in the script"
        raise UsageError(
            f"the settings are {where}, and treat changes only options of a command. Record it "
            "with `grpo-doctor run`, and change what the report says, or let the script parse them."
        )


def _refusal(words: Sequence[str]) -> str | None:
    """Return what `check` has against a launch; None where it fits, or nothing is known."""
    from grpo_doctor.cli.check import launch_here  # noqa: PLC0415
    from grpo_doctor.cli.check_memory import Request  # noqa: PLC0415
    from grpo_doctor.cli.checking import first_line  # noqa: PLC0415

    launch, gpus = launch_here(words)
    verdict, headline = first_line(launch, Request(gpus, is_here=True))
    return headline if verdict in ("oom", "invalid") else None


def _begun(
    options: argparse.Namespace, folder: Path, launch: Launch, words: Sequence[str]
) -> TreatDocument:
    """Return a new document, or the one that the folder has."""
    from msgspec.structs import replace  # noqa: PLC0415

    from grpo_doctor import __version__  # noqa: PLC0415
    from grpo_doctor_reports.schema.report import Tool  # noqa: PLC0415
    from grpo_doctor_reports.schema.treat import TreatDocument  # noqa: PLC0415

    new = TreatDocument(
        tool=Tool(name="grpo-doctor", version=__version__),
        command=redact_command(words),
        framework=launch.framework,
        framework_version=launch.version,
        goal=options.goal,
        allows_algorithm=bool(options.allow),
        budget_s=options.budget,
    )
    if not folder.exists() or not any(folder.iterdir()):
        return new
    former = _former(folder)
    if former.command != new.command or former.goal != new.goal:
        raise UsageError(f"-o: {folder} has the treatment of another command or goal.")
    allowed = new.allows_algorithm or former.allows_algorithm
    return replace(
        former, state="running", budget_s=options.budget, allows_algorithm=allowed, tool=new.tool
    )


def _former(folder: Path) -> TreatDocument:
    import msgspec  # noqa: PLC0415

    from grpo_doctor_reports.errors import ReportError  # noqa: PLC0415
    from grpo_doctor_reports.schema.treat import read_treatment  # noqa: PLC0415

    try:
        return read_treatment(msgspec.json.decode((folder / _CARD).read_bytes()))
    except (OSError, ReportError, msgspec.DecodeError) as problem:
        raise UsageError(
            f"-o: {folder} is not empty and has no card to continue from ({problem})."
        ) from problem


def _keep(folder: Path, card: TreatDocument) -> None:
    from grpo_doctor.cli.rendering import treatment_markdown, treatment_page  # noqa: PLC0415

    write_bytes(document_json(card), str(folder / _CARD))
    write_bytes(treatment_page(card), str(folder / "treat.html"))
    write_bytes(treatment_markdown(card).encode(), str(folder / "treat.md"))
    if card.patch:
        write_bytes(card.patch.encode(), str(folder / "treat.patch"))


def _show(options: argparse.Namespace, card: TreatDocument) -> int:
    from grpo_doctor.cli.rendering import markdown, treatment_markdown  # noqa: PLC0415

    if options.json:
        write_bytes(document_json(card), STDOUT)
    else:
        write_bytes(markdown(treatment_markdown(card), sys.stdout).encode(), STDOUT)
    return 0
