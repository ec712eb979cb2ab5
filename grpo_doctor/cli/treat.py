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
from grpo_doctor.cli.output import STDOUT, document_json, given_path, write_bytes
from grpo_doctor.errors import GrpoDoctorError, UsageError
from grpo_doctor_probes.record.redact import redact_command

if TYPE_CHECKING:
    from grpo_doctor.launches import Launch
    from grpo_doctor_reports.schema.treat import TreatDocument

NAME = "treat"
SUMMARY = "try the changes that a recording advises in short runs, and keep what proves a gain"
DESCRIPTION = """\
Records a few steps of the command, then tries the changes of the report one after the other in
short runs: before, after, after, before. A change is kept if its 95% interval over pairs is a
gain above 2%, and losses and rewards agree as `compare` judges them. The result is a command, or a
patch of your script, and a card with each trial. Your files stay as they are.
"""
EPILOG = """\
examples:
  grpo-doctor treat -- bash train.sh                 30 minutes of trials
  grpo-doctor treat --budget 2h -o treated -- bash train.sh
  grpo-doctor treat -o treated -- bash train.sh      the same folder: it continues
  grpo-doctor treat -o treated --write -- bash train.sh
                                                     also change train.sh as the result says
  grpo-doctor treat --allow algorithm -- bash train.sh
                                                     also batch sizes, lengths, learning rates
  grpo-doctor treat --dry-run -- bash train.sh       what a trial would be; nothing is started

Changes are options of the command. Each trial is a run of its own, with its own output folder, and
ends after so many steps. Ctrl-C ends with the best so far.

exit codes: 0 ended, with or without a change that is kept; 2 wrong usage, or the command takes no
options; 3 the recording of an earlier trial can't be read; 4 a result can't be written; 8 nothing
could be measured, for example no step was recorded; 9 it does not fit or would not start, by
`check`; 127 it can't be started; 130 Ctrl-C.
"""
_CARD, _INTERRUPTED = "treat.json", 130
_UNITS = {"s": 1, "m": 60, "h": 3600}


class DoesNotFitError(GrpoDoctorError):
    """`check` says that the command does not fit, or would not start."""

    exit_code = 9


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add("--budget", type=_seconds, default=1800.0, metavar="TIME",
        help="30m (default), 90s, 2h: no trial begins that would end later")  # fmt: skip
    add("--goal", choices=("step-time", "tokens"), default="step-time",
        help="seconds per step (default), or per completion token")  # fmt: skip
    add("--allow", choices=("algorithm",), action="append", default=[],
        help="also try changes of the math: batch, generations, lengths, learning rate",
    )  # fmt: skip
    text = "folder of the trials and the card; that of an earlier `treat` of this command is "
    text += "continued; default: grpo-doctor-out/treat-<date>-<time>"
    add("-o", "--output", type=given_path, metavar="DIR", help=text)
    add("--write", action="store_true", help="at the end, apply the patch to your script")
    add("--dry-run", action="store_true", help="print what a trial would be; start nothing")
    add("--json", action="store_true", help="print the card as JSON (schema 1)")


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
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
    if (refusal := _refusal(words)) is not None:
        raise DoesNotFitError(f"nothing was started: {refusal}")
    folder = options.output or Path("grpo-doctor-out") / time.strftime("treat-%Y%m%d-%H%M%S")
    doctor = Doctor(
        lambda given: launch_here(given)[0], _refusal, lambda card: _keep(folder, card), inform
    )
    session = Session(folder, words, launch, doctor, _begun(options, folder, launch, words))
    if options.dry_run:
        return _show(options, session.plan())
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _interrupt)
    code = 0
    try:
        session.run()
    except KeyboardInterrupt:
        code = _INTERRUPTED
    finally:
        inform(f"card    {folder / 'treat.html'}")
    if options.write and not code and (text := session.script_text()):
        write_bytes(text.encode(), session.document.script)
        inform(f"changed {session.document.script}")
    return _show(options, session.document) or code


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _require_flags(launch: Launch, words: Sequence[str]) -> None:
    """Raise UsageError where no option of the command would reach the trainer."""
    from grpo_doctor.launches.place import place_of  # noqa: PLC0415
    from grpo_doctor.launches.rule import SAMPLES  # noqa: PLC0415

    if launch.role != "train":
        raise UsageError("this command serves rollouts; give the command that trains.")
    if (outside := SAMPLES.outside(launch, "treat")) is not None:
        raise UsageError(f"no change is known for this command: {outside}.")
    place = place_of(words, launch.framework, (Path.cwd(),), time.time_ns())
    if place.form != "flag" or place.where.startswith("if "):
        raise UsageError(
            f"the settings are {place.where}, and treat changes options of a command. Record it "
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
    import msgspec  # noqa: PLC0415

    from grpo_doctor import __version__  # noqa: PLC0415
    from grpo_doctor_reports.errors import ReportError  # noqa: PLC0415
    from grpo_doctor_reports.schema import report, treat  # noqa: PLC0415

    wanted = {
        "command": redact_command(words), "framework_version": launch.version,
        "goal": options.goal, "allows_algorithm": bool(options.allow),
    }  # fmt: skip
    if not folder.exists() or not any(folder.iterdir()):
        tool = report.Tool(name="grpo-doctor", version=__version__)
        return treat.TreatDocument(
            tool=tool, framework=launch.framework, budget_s=options.budget, **wanted
        )
    try:
        former = treat.read_treatment(msgspec.json.decode((folder / _CARD).read_bytes()))
    except (OSError, ReportError, msgspec.DecodeError) as problem:
        raise UsageError(f"-o: {folder} has other files, and no card ({problem}).") from problem
    other = next((name for name, value in wanted.items() if getattr(former, name) != value), "")
    if other:
        raise UsageError(f"-o: {folder} has a treatment with another {other.replace('_', ' ')}.")
    running = {"state": "running", "verdict": "", "next_step": treat.WHILE_RUNNING}
    return msgspec.structs.replace(former, budget_s=options.budget, **running)


def _keep(folder: Path, card: TreatDocument) -> None:
    from grpo_doctor.cli.rendering import treatment_markdown, treatment_page  # noqa: PLC0415

    write_bytes(document_json(card), str(folder / _CARD))
    write_bytes(treatment_page(card), str(folder / "treat.html"))
    write_bytes(treatment_markdown(card).encode(), str(folder / "treat.md"))
    if card.patch:
        write_bytes(card.patch.encode(), str(folder / "treat.patch"))


def _show(options: argparse.Namespace, card: TreatDocument) -> int:
    from grpo_doctor.cli.rendering import markdown, treatment_markdown  # noqa: PLC0415

    text = markdown(treatment_markdown(card), sys.stdout).encode()
    write_bytes(document_json(card) if options.json else text, STDOUT)
    return 0
