"""The command line's manners: help, suggestions, exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from grpo_doctor import __version__, cli
from grpo_doctor.cli import parser
from tests.unit.cli.attached import Captured


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(option: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main([option])
    assert exit_info.value.code == 0
    assert capsys.readouterr().out.strip() == f"grpo-doctor {__version__}"


def test_a_completion_script_names_every_command(capsys: Captured) -> None:
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["--print-completion", "bash"])
    script = capsys.readouterr().out
    assert exit_info.value.code == 0
    assert subprocess.run(["bash", "-n"], input=script.encode(), check=False).returncode == 0
    assert {c.NAME for c in parser.COMMANDS} <= set(
        script.replace("(", " ").replace(")", " ").split()
    )


def test_a_completion_script_needs_shtab(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["--print-completion", "zsh"])
    assert exit_info.value.code == 2
    assert "pip install shtab" in capsys.readouterr().err


@pytest.mark.parametrize("command", [c.NAME for c in parser.COMMANDS])
def test_every_command_has_help_with_examples(command: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main([command, "--help"])
    assert exit_info.value.code == 0
    text = capsys.readouterr().out
    assert f"grpo-doctor {command}" in text.partition("examples:")[2]
    with pytest.raises(SystemExit):
        cli.main(["help", command])
    assert capsys.readouterr().out == text


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("place", "command", "words"),
    [
        ("grpo_doctor.cli.parser.make_parser", "attach", "grpo-doctor: interrupted.\n"),
        ("grpo_doctor.cli.rule.execute", "rule", "nothing that was recorded is lost"),
    ],
)
def test_ctrl_c(
    place: str, command: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(place, _interrupted)
    assert cli.main([command]) == 130
    assert words in capsys.readouterr().err


def test_what_follows_the_dashes_is_the_jobs() -> None:
    assert str(cli._parsed(["run", "-o", "x"]).output) == "x"
    assert cli._parsed(["run", "-o", "x"]).job_arguments is None
    assert cli._parsed(["run", "--"]).job_arguments == []
    assert cli._parsed(["run", "--", "python", "--", "a"]).job_arguments == ["python", "--", "a"]
