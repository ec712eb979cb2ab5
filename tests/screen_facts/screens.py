"""The first screen of a kept recording, as `report` makes it."""

from __future__ import annotations

from pathlib import Path

import msgspec

import grpo_doctor
from grpo_doctor.document import build_document
from grpo_doctor_reports import render_html, render_text
from tests.screen_facts.cases import Case
from tests.screen_facts.facts import Screen
from tests.screen_facts.raw import Raw

RECORDINGS = Path(__file__).with_name("recordings")
_WIDTH = 120


def path_of(case: Case) -> Path:
    """Where the recording of a case is kept."""
    return RECORDINGS / f"{case.name}.json.gz"


def screen(case: Case) -> Screen:
    """Reads the recording and renders its report."""
    document = build_document(grpo_doctor.load(path_of(case)).trace)
    text = render_text(document, width=_WIDTH, color=False)
    page = render_html(document)
    return Screen(case, Raw.read(path_of(case)), text, page, msgspec.to_builtins(document))
