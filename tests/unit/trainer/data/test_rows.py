"""Datasets from files, and mistakes in them named by file, line and column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor_trainer.data.rows import Row, load_rows
from grpo_doctor_trainer.errors import DatasetError

USER = {"role": "user", "content": "1+1"}


def jsonl(folder: Path, *rows: Any, name: str = "rows.jsonl") -> str:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def refusal(source: str) -> str:
    with pytest.raises(DatasetError) as error:
        load_rows([source])
    return str(error.value)


def test_without_a_dataset_arithmetic_is_generated() -> None:
    rows = load_rows([])
    assert rows[0] == Row([{"role": "user", "content": "0+0"}], {"solution": "0"})


def test_prompts_are_text_or_messages_and_the_rest_are_columns(tmp_path: Path) -> None:
    system = {"role": "system", "content": "Short."}
    path = jsonl(
        tmp_path,
        {"prompt": "1+1", "solution": "2", "level": 3},
        {"messages": [system, USER], "solution": "2", "level": None},
        {"messages": [USER, {"role": "assistant", "content": "2"}], "solution": "2", "level": 1},
        {"prompt": [USER], "solution": "2", "level": 1},
    )
    rows = load_rows([path])
    assert [row.messages for row in rows] == [[USER], [system, USER], [USER], [USER]]
    assert rows[0].columns == {"solution": "2", "level": 3}


def test_json_and_parquet_hold_the_same_rows(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("datasets", reason="needs the trainer extra")
    raws = [{"prompt": "1+1", "solution": "2"}, {"prompt": "1+2", "solution": "3"}]
    path = tmp_path / "rows.json"
    path.write_text(json.dumps(raws), encoding="utf-8")
    columns = tmp_path / "rows.parquet"
    pandas.DataFrame(raws).to_parquet(columns)
    expected = load_rows([jsonl(tmp_path, *raws)])
    assert load_rows([str(path)]) == expected
    assert load_rows([str(columns)]) == expected


def test_joined_datasets_have_all_columns(tmp_path: Path) -> None:
    first = jsonl(tmp_path, {"prompt": "a", "solution": "1"}, name="one.jsonl")
    two = jsonl(tmp_path, {"prompt": "b", "key": 2}, name="two.jsonl")
    columns = [row.columns for row in load_rows([first, two])]
    assert columns == [{"solution": "1", "key": None}, {"solution": None, "key": 2}]


def test_empty_lines_are_skipped_and_lines_counted_with_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a"}\n\n{"prompt": "b"\n', encoding="utf-8")
    assert f"{path}, line 3: not JSON" in refusal(str(path))
    assert "column" in refusal(str(path))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "a", "key": 1}, "no column prompt or messages; columns here: question, key"),
        ({}, "columns here: none"),
        ({"prompt": None}, "no column prompt or messages"),
        ([1], "a row must be an object with a prompt column, not a list"),
        ({"prompt": 3}, "column prompt: must be text, or a list of"),
        ({"messages": [{"role": "user"}]}, "column messages: must be text, or a list of"),
        ({"messages": []}, "column messages: there is no message to answer"),
        ({"messages": [{"role": "assistant", "content": "2"}]}, "there is no message to answer"),
    ],
)
def test_bad_rows_name_file_line_and_column(tmp_path: Path, row: Any, message: str) -> None:
    path = jsonl(tmp_path, {"prompt": "good"}, row)
    text = refusal(path)
    assert text.startswith(f"{path}, line 2")
    assert message in text


def test_files_that_are_no_dataset(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(str(tmp_path / "missing.jsonl"))
    assert "has no rows" in refusal(jsonl(tmp_path))
    assert "#N is gone" in refusal(f"{jsonl(tmp_path)}#10")
    table = tmp_path / "rows.csv"
    table.write_text("prompt\n1+1\n", encoding="utf-8")
    assert "only .jsonl, .json, .parquet files can be read" in refusal(str(table))
    single = tmp_path / "rows.json"
    single.write_text('{"prompt": "a"}', encoding="utf-8")
    assert "must hold a list of rows, not an object" in refusal(str(single))


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.parquet"])
def test_binary_content_is_one_message(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\xff\xfe\x00broken")
    assert str(path) in refusal(str(path))


@pytest.mark.parametrize(("line", "where"), [(b"\xff", "byte 1"), (b'{"a": "\xff"}', "byte 8")])
def test_where_a_line_is_no_text_is_counted_from_one(
    tmp_path: Path, line: bytes, where: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n' + line)
    assert refusal(str(path)) == f"{path}, line 2: not UTF-8 text ({where})"
