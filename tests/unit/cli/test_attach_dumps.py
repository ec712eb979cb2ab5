"""`attach --dumps`: folders of flight-recorder files, and what is none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from grpo_doctor.cli import main
from tests.dumps.formats import dumps as dumps_of
from tests.dumps.simulator import WORLD, Call
from tests.dumps.simulator import job as simulated
from tests.unit.cli.attached import Captured


def test_a_folder_without_dumps(capsys: Captured, tmp_path: Path) -> None:
    assert main(["attach", "--dumps", str(tmp_path)]) == 5
    assert "no flight-recorder file" in capsys.readouterr().err


def test_large_dumps_are_said_to_take_a_while(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = (Call("all_reduce"),)
    for dump in dumps_of(simulated({WORLD: (0, 1)}, {0: calls, 1: calls}).run()):
        (tmp_path / Path(dump.source).name).write_bytes(dump.data)
    assert main(["attach", "--dumps", str(tmp_path)]) in (0, 3)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("grpo_doctor.cli.attach_evidence._SAID_FROM_MB", 0.0)
    assert main(["attach", "--json", "--dumps", str(tmp_path)]) in (0, 3)
    output = capsys.readouterr()
    assert "reading 2 dumps, 0 MB: about 1 s ..." in output.err
    assert json.loads(output.out)["schema"] == 1


def test_a_folder_with_other_files(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "a_0").write_text('{"hello": 1}')
    (tmp_path / "b").write_text("hello")
    assert main(["attach", "--dumps", str(tmp_path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert (
        f"{tmp_path / 'a_0'} is not a flight-recorder dump: it has none of its fields" in output.err
    )
    assert (
        f"{tmp_path / 'b'} is not a flight-recorder dump: neither JSON nor a pickle" in output.err
    )


def test_a_bundle_is_no_folder_of_dumps(capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "evidence.json.gz").write_bytes(gzip.compress(b"{}"))
    assert main(["attach", "--dumps", str(tmp_path)]) == 2
    assert "Give it to --replay" in capsys.readouterr().err
