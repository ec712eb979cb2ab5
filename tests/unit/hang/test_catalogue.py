from __future__ import annotations

import ast
from pathlib import Path

import pytest

from grpo_doctor.hang import docs
from grpo_doctor.hang.catalogue import BY_NAME, CLASSES, FIXES, advice

PAGE = Path(__file__).parents[3] / "docs" / "hang.md"


@pytest.mark.parametrize("entry", CLASSES, ids=lambda entry: entry.name)
def test_every_class_says_what_it_is_in_whole_sentences(entry: object) -> None:
    for field in ("means", "looks_like", "what_to_do"):
        sentence = getattr(entry, field)
        assert len(sentence) > 40
        assert sentence[0] == "`" or sentence[0].isupper()
        assert sentence.endswith(".")


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(CLASSES)


def named(node: ast.expr) -> list[object]:
    """The constants that an argument may be."""
    if isinstance(node, ast.IfExp):
        return named(node.body) + named(node.orelse)
    return [node.value] if isinstance(node, ast.Constant) else []


def test_causes_give_the_advice_of_the_table_and_all_of_it() -> None:
    sources = (path.read_text("utf-8") for path in Path(docs.__file__).parent.rglob("*.py"))
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    given = [call for call in calls if getattr(call.func, "id", "") == "advice"]
    asked = {name for call in given for word in call.args for name in named(word)}
    assert len(asked) > 60
    assert asked <= set(FIXES)
    assert set(FIXES) <= {node.value for node in nodes if isinstance(node, ast.Constant)}
    assert advice("lock file", path="/a")[0].text.startswith("End the process that holds /a;")
    assert advice("less memory", "swapped")[1].knob == "offload.optimizer"


def test_the_page_is_up_to_date() -> None:
    on_disk = PAGE.read_text(encoding="utf-8")
    assert docs.updated(on_disk) == on_disk, "run `python -m grpo_doctor.hang.docs`"


def test_only_what_is_between_the_marks_is_written_anew(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8").replace("## Permissions", "## Rights")
    path = tmp_path / "hang.md"
    path.write_text(page.replace("### rank-stopped", "### rank-halted"), encoding="utf-8")
    assert docs.main([str(path)]) == 0
    assert path.read_text(encoding="utf-8") == page


def test_a_page_without_marks_is_refused() -> None:
    for page in ("# Another page", f"<!-- Made from {docs._OF}. -->\n"):
        with pytest.raises(ValueError, match="no marks"):
            docs.updated(page)
