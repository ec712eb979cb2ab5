# ruff: noqa: RUF001 (the en dash and the minus sign are what a report prints)
from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from grpo_doctor_reports import render_html
from tests.demo_reports import ATTACKS, DEMOS

BUDGET_BYTES = 2_500_000
_VOID = {"meta", "input", "br", "img", "hr", "link"}


class Parsed(HTMLParser):
    """Elements, visible text and the contents of script elements, as a browser would see them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            attributes, before = self.scripts[-1]
            self.scripts[-1] = (attributes, before + data)
        elif self.open[-1:] != ["style"]:
            self.text += data

    def attribute(self, name: str) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get(name)) is not None]


# The long one alone takes as long as all others.
NAMES = [pytest.param(name, marks=pytest.mark.slow if name == "long" else ()) for name in DEMOS]


class Pages(dict[str, str]):
    """The page of each made-up document, drawn when it is first asked for."""

    def __missing__(self, name: str) -> str:
        self[name] = render_html(DEMOS[name]())
        return self[name]


@pytest.fixture(scope="module")
def pages() -> Pages:
    return Pages()


@pytest.mark.parametrize("name", NAMES)
def test_pages_are_well_formed_with_unique_ids(pages: Pages, name: str) -> None:
    page = Parsed(pages[name])
    assert page.open == []
    ids = page.attribute("id")
    assert len(ids) == len(set(ids))
    links = set(page.attribute("href")) - {"hangs/0/report.html"}
    assert all(value.startswith("#") for value in links)
    assert {value[1:] for value in links} <= set(ids)


@pytest.mark.parametrize("name", NAMES)
def test_pages_refer_to_nothing_outside(pages: Pages, name: str) -> None:
    page = Parsed(pages[name])
    assert not page.attribute("src")
    assert {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "base"} == set()
    assert not re.search(r"url\(|@import", "".join(re.findall(r"<style>.*?</style>", pages[name])))


def test_the_policy_allows_exactly_its_own_scripts_and_plotly(pages: Pages) -> None:
    page = Parsed(pages["slow"])
    policy = page.attribute("content")[0]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    own = [text for attributes, text in page.scripts if "type" not in attributes]
    packed = next(text for attrs, text in page.scripts if attrs.get("id") == "plotly")
    plotly = gzip.decompress(base64.b64decode(packed)).decode()
    first, last = own
    assert [_sha256(first), _sha256(last), _sha256(plotly)] == allowed


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@pytest.mark.slow
def test_a_thousand_steps_on_eight_ranks_stay_in_the_size_budget(pages: Pages) -> None:
    assert len(pages["long"].encode()) < BUDGET_BYTES


def test_a_killed_run_says_who_hung_where_and_what_is_missing(pages: Pages) -> None:
    text = " ".join(Parsed(pages["killed"]).text.split())
    first_screen = text[: text.index("Over time")]
    assert "Incomplete recording. Rank 3 left no recording." in first_screen
    assert "Ranks 0–2 were in init/process_group for 11 min 42 s" in first_screen
    assert "SIGKILL after 12 min 14 s" in first_screen


def test_hostile_strings_add_no_element_and_no_attribute(pages: Pages) -> None:
    hostile = Parsed(pages["hostile"])
    honest = [tag for name in ("slow", "killed") for tag in Parsed(pages[name]).tags]
    assert {tag for tag, _ in hostile.tags} <= {tag for tag, _ in honest}
    attributes = {name for _, attrs in hostile.tags for name in attrs}
    assert attributes <= {name for _, attrs in honest for name in attrs}
    assert not any(name.startswith("on") for name in attributes)
    classes = {name for demo in ("slow", "killed") for name in _classes(Parsed(pages[demo]))}
    assert _classes(hostile) <= classes | {"info", "long", "phase-unattributed", "words"}
    assert len(hostile.scripts) == 4


def _classes(page: Parsed) -> set[str]:
    return {name for value in page.attribute("class") for name in value.split()}


def test_no_hostile_string_survives_as_it_was(pages: Pages) -> None:
    page = pages["hostile"]
    for raw in ("<img src=x", "<svg onload", "</SCRIPT", "<b>bold", "\u2028", "\u2029", "\u202e"):
        assert raw not in page, raw
    for raw in ("\u2066", "\u200b", "\x1b", "\x9b", "\x07", "\x00", "49{%", "<!--"):
        assert raw not in page, raw
    page.encode("utf-8")


def test_hostile_strings_are_still_shown_as_what_they_are(pages: Pages) -> None:
    text = Parsed(pages["hostile"]).text
    assert ATTACKS[0] in text
    assert ATTACKS[4] in text
    assert "⟨U+202E⟩gnp.exe" in text


def test_plotly_never_sees_a_template(pages: Pages) -> None:
    page = Parsed(pages["hostile"])
    own = next(text for attributes, text in page.scripts if "type" not in attributes)
    for forbidden in ("hovertemplate", "texttemplate", "innerHTML", "document.write", "eval("):
        assert forbidden not in own


def test_facts_are_json_of_the_charts(pages: Pages) -> None:
    page = Parsed(pages["hostile"])
    packed = next(text for attributes, text in page.scripts if attributes.get("id") == "facts")
    facts: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert set(facts) == {"time", "steps", "labels", "findings", "whatif", "figures"}
    hostile = [attack for attack in ATTACKS if "%{" in attack]
    templates = str(_values(facts["figures"], "hovertemplate"))
    assert hostile
    assert not any(attack in templates for attack in hostile)


def _values(value: Any, key: str) -> list[Any]:
    """What stands under a key, at any depth."""
    if isinstance(value, list):
        return [found for item in value for found in _values(item, key)]
    if not isinstance(value, dict):
        return []
    own = [value[key]] if key in value else []
    return own + [found for item in value.values() for found in _values(item, key)]
