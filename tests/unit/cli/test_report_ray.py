"""`report --ray` over nodes that answer as told; Ray itself: `tests/frameworks`."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

import grpo_doctor
from grpo_doctor.cli import main, report_ray
from grpo_doctor.cli.hosts import Said
from tests.unit.cli.attached import Captured
from tests.unit.trace.test_parts import run_in

Look = Callable[[list[str], bytes], Said]
Report = Callable[..., tuple[int, str, str]]


def program(command: list[str], given: bytes) -> Said:
    """The program of this checkout, as a task of Ray starts it."""
    words = [sys.executable, "-m", "grpo_doctor", *command]
    done = subprocess.run(words, input=given, capture_output=True, check=False)
    return Said(done.returncode, done.stdout, done.stderr.decode())


def here(command: list[str], given: bytes) -> Said:
    """The same within this process, which takes a tenth of the time."""
    written: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        patch.setattr(report_ray, "write_binary", written.append)
        return Said(main(command), b"".join(written), "")


@dataclass
class FakeNode:
    name: str
    said: Said

    def look(self) -> Said:
        return self.said


@dataclass
class FakeNodes:
    """A cluster whose nodes answer as they are told."""

    looks: dict[str, Look]
    absent: tuple[str, ...] = ()
    ended: list[str] = field(default_factory=list)

    @property
    def alive(self) -> list[str]:
        return [*self.looks]

    @property
    def ray(self) -> FakeNodes:
        return self

    def shutdown(self) -> None:
        self.ended.append("shutdown")

    def started(
        self, command: list[str], remote: str | None, given: Sequence[bytes | None] = ()
    ) -> list[FakeNode]:
        assert remote is None
        each = zip(self.looks.items(), given or [b""] * len(self.looks))
        return [FakeNode(name, look(command, i)) for (name, look), i in each if i is not None]


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured) -> Report:
    run = run_in(tmp_path / "run")
    monkeypatch.chdir(tmp_path)

    def report(
        nodes: FakeNodes | None = None, *more: str, path: str = str(run)
    ) -> tuple[int, str, str]:
        ray = ["--ray"] if nodes else ["--read-only"]
        monkeypatch.setattr(report_ray, "connected", lambda address: nodes)
        code = main(["report", path, *ray, *(more or ["--json"])])
        assert nodes is None or nodes.ended == ["shutdown"]
        return code, *capfd.readouterr()

    return report


def test_the_document_is_that_of_one_machine(reported: Report) -> None:
    code, document, words = reported(FakeNodes({"b": program, "a": program}))
    assert (code, document) == reported()[:2]
    assert words.endswith("on 2 nodes of the Ray cluster ...\n")


def test_nothing_is_written_into_the_run_but_the_page(tmp_path: Path, reported: Report) -> None:
    before = sorted(path for path in (tmp_path / "run").rglob("*"))
    assert reported(FakeNodes({"a": here}), "--format", "html")[0] == 0
    page = tmp_path / "run" / "report.html"
    assert sorted((tmp_path / "run").rglob("*")) == sorted([*before, page])


def test_a_run_that_is_only_on_nodes_has_its_page_where_it_is_asked_for(
    tmp_path: Path, reported: Report
) -> None:
    def elsewhere(command: list[str], given: bytes) -> Said:
        return here(
            [str(tmp_path / "run") if word == "/gone/run" else word for word in command], given
        )

    code, _, words = reported(FakeNodes({"a": elsewhere}), "--format", "html", path="/gone/run")
    assert code == 0
    assert "wrote report.html" in words
    assert (tmp_path / "report.html").exists()


NOBODY = Said(1, b"", "RayTaskError: the node died")
OLD = Said(2, b"", "grpo-doctor report: error: unrecognized arguments: --part")
OTHER = Said(0, msgspec.msgpack.encode({"version": "0.0.1", "folders": []}), "")
NO_ANSWER = Said(0, b"hello", "")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (NOBODY, "c: RayTaskError: the node died"),
        (OLD, "c: grpo-doctor report: error: unrecognized arguments: --part"),
        (OTHER, f"c has grpo-doctor 0.0.1, not {grpo_doctor.__version__}"),
        (NO_ANSWER, f"c has another version of grpo-doctor than {grpo_doctor.__version__}"),
    ],
)
def test_a_node_that_gives_nothing_is_named_and_the_others_are_reported(
    said: Said, reason: str, reported: Report
) -> None:
    nodes = FakeNodes({"a": here, "c": lambda *_: said}, absent=("node d is dead for Ray",))
    code, document, words = reported(nodes)
    assert code == 0
    lacking = "; what only this node has is missing"
    assert f"grpo-doctor: {reason}{lacking}\n" in words
    assert f"grpo-doctor: node d is dead for Ray{lacking}\n" in words
    notes = msgspec.json.decode(document)["run"]["loss"]["notes"]
    assert notes[:2] == [f"node d is dead for Ray{lacking}", f"{reason}{lacking}"]


def test_a_node_that_dies_while_it_reads_is_named(reported: Report) -> None:
    nodes = FakeNodes(
        {"a": here, "c": lambda command, given: NOBODY if given else here(command, b"")}
    )
    code, document, words = reported(nodes)
    assert code == 0
    assert "c: RayTaskError: the node died; what only this node has is missing" in words
    assert document != reported()[1]


def test_without_anything_to_report_there_is_one_sentence(reported: Report) -> None:
    code, document, words = reported(FakeNodes({"a": here, "b": here}), path="/nowhere")
    assert (code, document) == (3, "")
    assert "none of the 2 nodes of the Ray cluster has /nowhere. Give" in words
    code, _, words = reported(FakeNodes({"a": lambda *_: NOBODY}))
    assert code == 3
    assert "a: RayTaskError: the node died; what only this node has is missing." in words
