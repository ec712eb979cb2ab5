"""The schemas that are printed and documented are those of the code."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from grpo_doctor.cli import main
from grpo_doctor.cli.schema import COMMANDS, json_schema
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import encoded_document
from grpo_doctor_reports.schema.attach import AttachDocument
from grpo_doctor_reports.schema.findings import WhatifDocument
from grpo_doctor_reports.schema.report import ReportDocument
from tests.evidence import EvidenceBuilder
from tests.unit.cli.attached import Captured

FOLDER = Path(__file__).parents[3] / "docs" / "schemas"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_documented_schema_is_the_printed_one(command: str, capsys: Captured) -> None:
    assert main(["schema", command]) == 0
    printed = capsys.readouterr().out
    assert printed == (FOLDER / f"{command}.json").read_text(), "run `make docs`"
    assert json.loads(printed)["$schema"].endswith("2020-12/schema")


def test_without_a_command_all_are_listed(capsys: Captured) -> None:
    assert main(["schema"]) == 0
    assert capsys.readouterr().out.split() == list(COMMANDS)
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(COMMANDS)


def test_a_member_is_called_as_in_the_document() -> None:
    parts = json_schema("report")["$defs"]
    assert {"from", "to"} <= set(parts["FixEntry"]["properties"])
    assert "class" in json_schema("attach")["$defs"]["Verdict"]["properties"]


@pytest.mark.parametrize("kind", [AttachDocument, ReportDocument, WhatifDocument])
def test_only_the_version_is_needed(kind: type) -> None:
    document: object = msgspec.convert({"schema": 1}, kind)
    assert msgspec.json.decode(msgspec.json.encode(document), type=kind) == document


def test_what_attach_prints_has_the_members_of_its_schema_and_no_others() -> None:
    build = EvidenceBuilder(ranks=4)
    build.calls(2, "broadcast")
    printed = json.loads(encoded_document(diagnose(build.build())))
    assert printed["verdict"]["class"] == "collective-mismatch"
    read = msgspec.convert(printed, AttachDocument)
    assert json.loads(msgspec.json.encode(read)) == printed
