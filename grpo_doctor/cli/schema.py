"""`grpo-doctor schema`: the JSON Schema of what `--json` prints."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from grpo_doctor.cli.output import STDOUT, document_json, write_bytes

NAME = "schema"
SUMMARY = "print the JSON Schema of what a command's --json prints"
DESCRIPTION = """\
Prints the JSON Schema (draft 2020-12) of the document that a command prints with --json. Without
COMMAND, lists the commands. The member `schema` of a document is its version. It changes when a
member changes its meaning or is removed, not when one is added: ignore unknown members.
"""
EPILOG = """\
examples:
  grpo-doctor schema                             list the schemas
  grpo-doctor schema attach > attach.schema.json

exit codes: 0; 2 wrong usage, or no schema of that name; 4 the schema can't be written.
"""
COMMANDS = ("attach", "check", "compare", "report", "treat", "whatif")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "command", metavar="COMMAND", nargs="?", choices=COMMANDS, help=", ".join(COMMANDS)
    )


def execute(options: argparse.Namespace) -> int:
    """Print; return the exit code."""
    if options.command is None:
        write_bytes("\n".join([*COMMANDS, ""]).encode(), STDOUT)
    else:
        write_bytes(document_json(json_schema(options.command)), STDOUT)
    return 0


def json_schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema of what `command --json` prints."""
    import msgspec  # noqa: PLC0415 - after usage errors

    from grpo_doctor_reports.schema.attach import AttachDocument  # noqa: PLC0415
    from grpo_doctor_reports.schema.check import CheckDocument  # noqa: PLC0415
    from grpo_doctor_reports.schema.compare import ComparisonDocument  # noqa: PLC0415
    from grpo_doctor_reports.schema.findings import WhatifDocument  # noqa: PLC0415
    from grpo_doctor_reports.schema.report import ReportDocument  # noqa: PLC0415
    from grpo_doctor_reports.schema.treat import TreatDocument  # noqa: PLC0415

    kinds = {
        "attach": AttachDocument,
        "check": CheckDocument,
        "compare": ComparisonDocument,
        "report": ReportDocument,
        "treat": TreatDocument,
        "whatif": WhatifDocument,
    }
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    schema: dict[str, Any] = _dedented(msgspec.json.schema(kinds[command]))
    return draft | schema


def _dedented(value: Any) -> Any:
    """Return a schema whose descriptions are those of every msgspec: docstrings keep their indent
    until 0.22, and until Python 3.13."""
    if isinstance(value, dict):
        return {
            key: inspect.cleandoc(each)
            if key == "description" and isinstance(each, str)
            else _dedented(each)
            for key, each in value.items()
        }
    return [_dedented(each) for each in value] if isinstance(value, list) else value
