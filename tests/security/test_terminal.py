"""Names and text of strangers reach no terminal and no log of an action as they are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.security.measured import cost

_ROOT = Path(__file__).parents[2]
_NAME = "a\x1b[8m\x1b]0;pwned\x07\u202eb\x9b31m\n::error::pwned"
_ACTING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_LAUNCH = "swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B"
_CHECK = ["check", "--gpus", "8xA100-80G"]


def _script(folder: Path) -> None:
    (folder / "s.sh").write_text(f'{_LAUNCH} \\\n --no_such_option "{_NAME}" --beta "{_NAME}"\n')


@pytest.mark.parametrize(
    "arguments",
    [
        [*_CHECK, "--", "s.sh"],
        [*_CHECK, "--format", "github", "--", "s.sh"],
        [*_CHECK, "--format", "sarif", "--", "s.sh"],
        [*_CHECK, "--json", "--", "s.sh"],
        [*_CHECK, "--", *_LAUNCH.split(), "--config", f"{_NAME}.yaml"],
        ["check", "--gpus", _NAME, "--", "s.sh"],
        ["check", "--", _NAME],
        ["attach", "--replay", "folder"],
        ["attach", "--replay", f"folder/{_NAME}.tar.gz"],
        ["report", f"folder/{_NAME}.tar.gz"],
        ["report", "folder"],
        ["report", _NAME],
        ["compare", _NAME, _NAME],
        [_NAME],
        ["report", f"--{_NAME}"],
    ],
    ids=lambda arguments: ascii(" ".join(arguments))[:40],
)
def test_nothing_that_acts_is_printed(arguments: list[str], tmp_path: Path) -> None:
    _script(tmp_path)
    (tmp_path / "folder").mkdir()
    for name in (f"{_NAME}.tar.gz", f"{_NAME}.pt.trace.json"):
        (tmp_path / "folder" / name).write_text("junk")
    used = cost(arguments, tmp_path)
    assert used.output
    text = used.output.decode()
    assert not _ACTING.search(text)
    commands = [line for line in text.splitlines() if line.lstrip().startswith("::")]
    assert not [line for line in commands if line.startswith("::error::pwned")]


# Streams that are no terminal: a child's answers to its parent, and one line in the job's own log.
_WRITERS = {
    "grpo_doctor/cli/output.py",
    "probes/grpo_doctor_probes/gpu/child.py",
    "probes/grpo_doctor_probes/hooks/startup/sitecustomize.py",
    "probes/grpo_doctor_probes/record/recorder.py",
}


def test_nothing_else_prints() -> None:
    printing = {
        str(path.relative_to(_ROOT))
        for folder in ("grpo_doctor", "probes", "reports")
        for path in sorted((_ROOT / folder).rglob("*.py"))
        if any(map(_prints, ast.walk(ast.parse(path.read_text()))))
    }
    assert printing == _WRITERS


def _prints(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return called in ("print", "click.echo", "rich.print") or bool(
        re.fullmatch(r"sys\.(__)?std(out|err)(__)?(\.buffer)?\.write(lines)?", called)
        or (called == "_write_whole" and node.args)
    )
