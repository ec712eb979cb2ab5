"""Each test that the page on safety names is there under its name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def test_every_sentence_in_a_table_names_a_test() -> None:
    page = (ROOT / "docs" / "safety.md").read_text(encoding="utf-8")
    lines = page.partition("## What reading may cost")[0].splitlines()
    rows = [line for line in lines if line.startswith("| ") and line != "| what holds | test |"]
    assert [line for line in rows if not NAMED.search(line)] == []


def test_the_tests_that_are_named_exist() -> None:
    page = (ROOT / "docs" / "safety.md").read_text(encoding="utf-8")
    missing = []
    for file, name in NAMED.findall(page):
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            missing.append(f"{file}::{name}")
    assert missing == []
