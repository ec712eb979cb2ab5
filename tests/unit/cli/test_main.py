"""The command line's manners: help, suggestions, exit codes."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from grpo_doctor import __version__, cli
from grpo_doctor.cli import parser


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        cli.main([option])
    assert exit_info.value.code == 0
    assert capsys.readouterr().out.strip() == f"grpo-doctor {__version__}"


def test_a_completion_script_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["--print-completion", "bash"])
    script = capsys.readouterr().out
    assert exit_info.value.code == 0
    assert subprocess.run(["bash", "-n"], input=script.encode(), check=False).returncode == 0
    assert {c.NAME for c in parser.COMMANDS} <= set(
        script.replace("(", " ").replace(")", " ").split()
    )


def test_a_completion_script_needs_shtab(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as exit_info:
        cli.main(["--print-completion", "zsh"])
    assert exit_info.value.code == 2
    assert "pip install shtab" in capsys.readouterr().err


@pytest.mark.parametrize("command", [c.NAME for c in parser.COMMANDS])
def test_every_command_has_help_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_ctrl_c_while_commands_are_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = SimpleNamespace(make_parser=_interrupted)
    monkeypatch.setitem(sys.modules, "grpo_doctor.cli.parser", slow)
    assert cli.main(["attach"]) == 130
    assert capsys.readouterr().err == "grpo-doctor: interrupted.\n"


def test_ctrl_c_in_a_command_that_reads_a_recording(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("grpo_doctor.cli.rule.execute", _interrupted)
    assert cli.main(["rule"]) == 130
    assert "nothing that was recorded is lost" in capsys.readouterr().err


def test_what_follows_the_dashes_is_the_jobs() -> None:
    assert str(cli._parsed(["run", "-o", "x"]).output) == "x"
    assert cli._parsed(["run", "-o", "x"]).job_arguments is None
    assert cli._parsed(["run", "--"]).job_arguments == []
    assert cli._parsed(["run", "--", "python", "--", "a"]).job_arguments == ["python", "--", "a"]
