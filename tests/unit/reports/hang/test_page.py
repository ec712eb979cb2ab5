"""The verdict's page: one file, offline, and everything in it stays text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from grpo_doctor_reports import assets
from grpo_doctor_reports.assets import code
from grpo_doctor_reports.hang.page import hang_page
from tests.demo_reports import ATTACKS
from tests.demo_verdicts import VISITS


class Elements(HTMLParser):
    """The names of all elements and attributes, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page(name: str) -> str:
    return hang_page(VISITS[name]()).decode()


@pytest.mark.parametrize("name", VISITS)
def test_it_is_complete_and_small(name: str) -> None:
    shown = page(name)
    assert shown.startswith("<!doctype html>")
    assert len(shown) < 100_000
    attributes = Elements(shown).attributes
    links = [value or "" for name, value in attributes if name in {"href", "src"}]
    assert all(link.startswith("#") for link in links)
    (policy,) = [value for name, value in attributes if value and value.startswith("default-src")]
    assert policy.startswith("default-src 'none'")
    assert assets.csp_hash(assets.script(*assets.STILL_SCRIPTS)) in policy


def test_hostile_strings_stay_text() -> None:
    elements = Elements(page("hostile"))
    assert elements.tags.count("script") == 2
    assert "img" not in elements.tags
    assert not [name for name, _ in elements.attributes if name.startswith("on")]
    text = "".join(elements.text)
    assert "</script><img src=x onerror=window.executed=1>" in text
    assert "{{7*7}}" in text
    assert "\x1b" not in page("hostile")
    assert len(ATTACKS) > 5


def test_what_stands_between_backticks_is_code_and_stays_text() -> None:
    assert code("run `ls <b>` & wait") == "run <code>ls &lt;b&gt;</code> &amp; wait"
    assert code("a lone ` stays") == "a lone ` stays"
