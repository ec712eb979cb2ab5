"""Two runs drawn: the same words on the page and in the terminal, whatever the document holds."""

from __future__ import annotations

import unicodedata
from typing import Any

import msgspec
import pytest

from grpo_doctor.compare import compare
from grpo_doctor_reports import formatting
from grpo_doctor_reports.compare import comparison_page, comparison_text, steps_drawing
from grpo_doctor_reports.errors import DocumentError
from grpo_doctor_reports.schema.compare import read_comparison
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import healthy, offloaded

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    written: dict[str, Any] = msgspec.to_builtins(compare(offloaded().build(), healthy()))
    return written


def test_a_prediction_that_can_not_be_judged_says_why(document: dict[str, Any]) -> None:
    fix = {**document["fixes"][0], "inside": None, "note": "too few steps to hold it to"}
    unjudged = {**document, "fixes": [fix]}
    text = " ".join(comparison_text(unjudged, 100, color=False).split())
    assert "not evaluated: too few steps" in text
    assert "Not evaluated: too few steps" in comparison_page(unjudged).decode()


def test_runs_without_steps_are_drawn_too() -> None:
    document = msgspec.to_builtins(compare(TraceBuilder(ranks=0).build(), healthy()))
    assert "can&#39;t be compared" in comparison_page(document).decode()
    assert "can't be compared" in comparison_text(document, 80, color=False)


def test_hostile_strings_are_harmless(document: dict[str, Any]) -> None:
    hostile = dict(document)
    hostile["verdict"] = HOSTILE
    hostile["cautions"] = [HOSTILE]
    hostile["settings"] = [{"knob": HOSTILE, "name": HOSTILE, "before": HOSTILE, "after": {"a": 1}}]
    hostile["fixes"] = [{"knobs": {HOSTILE: [HOSTILE, None], "b": 3}, "findings": [HOSTILE]}]
    hostile["findings"] = [dict.fromkeys(("id", "title", "state", "severity"), HOSTILE)]
    page = comparison_page(hostile).decode()
    assert "<script>alert" not in page
    text = comparison_text(hostile, 80, color=False)
    for character in text:
        assert character == "\n" or unicodedata.category(character) not in {"Cc", "Cf", "Cs"}


def test_another_schema_is_refused() -> None:
    with pytest.raises(DocumentError, match="schema 2"):
        comparison_page({"schema": 2})


def test_what_was_not_predicted_says_why_once(document: dict[str, Any]) -> None:
    knobs = {f"train.knob_{n:02}": [None, n] for n in range(20)}
    nothing = dict.fromkeys(("predicted_low_pct", "predicted_mid_pct", "predicted_high_pct"))
    fix = {**document["fixes"][0], **nothing, "knobs": knobs, "inside": None}
    fix["unpredicted"] = "no model predicts it"
    text = comparison_text({**document, "fixes": [fix]}, 100, color=False)
    assert text.count("no model predicts it") == 1
    assert "Predicted and measured" not in text
    page = comparison_page({**document, "fixes": [fix]}).decode()
    assert page.count("no model predicts it") == 1
    assert "Predicted from BEFORE" not in page


def test_the_first_settings_come_first_and_the_others_on_demand(document: dict[str, Any]) -> None:
    names = [f"knob_{n:02}" for n in range(40)]
    settings = [{"knob": f"train.{name}", "name": name, "after": 1} for name in names]
    text = comparison_text({**document, "settings": settings}, 100, color=False)
    page = comparison_page({**document, "settings": settings}).decode()
    assert [name for name in names if name in text] == names[:8]
    assert "32 more: see --html or --json" in text
    assert text.index(names[7]) < text.index("change (95% interval)")
    assert all(name in page for name in names)
    assert page.index(names[7]) < page.index("32 more</summary>") < page.index(names[8])
    few = comparison_page({**document, "settings": settings[:8]}).decode()
    assert "more</summary>" not in few


def test_the_axes_of_the_drawing_are_labelled(document: dict[str, Any]) -> None:
    drawing = steps_drawing(read_comparison(document))
    assert drawing is not None
    page = comparison_page(document).decode()
    axis = page[page.index('class="y-axis"') : page.index("<svg")]
    assert [formatting.seconds(value) in axis for _, value in drawing.marks] == [True] * 3
