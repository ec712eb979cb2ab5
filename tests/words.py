"""Plain English, held by `make lint`: no word that STYLE.md bans, no message with a long sentence.

`python -m tests.words [PATH ...]` checks what a user reads: strings and docstrings of the product,
templates, pages. With paths it checks those alone, also where they are not clean yet.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
STYLE = ROOT / "STYLE.md"
READ = (
    "*.md",
    "docs/**/*.md",
    "grpo_doctor/**/*.md",
    "grpo_doctor/**/*.json",
    "reports/**/*.j2",
    "reports/**/*.js",
    *(f"{folder}/**/*.py" for folder in ("grpo_doctor", "probes", "trainer")),
)
# Remove a path once nothing is found in it: the check fails on one that is clean.
NOT_CLEAN: tuple[str, ...] = ()
MOST_WORDS = 25
# Also at a line that is indented or begins an item or a row: an example, a list, a table.
SENTENCE_END = re.compile(r"[.?!:;](?:\s|$)|\n(?=\s|[-*] |\|)")
PROSE = re.compile(r"\b(?:a|an|the|is|are|of)\b")

# Members of our JSON data that a user reads; the others are names, patterns and foreign text.
SHOWN = re.compile(
    r'"(?:says|fix|next|meaning|why|risk|text|note)": (?:"(?:[^"\\\n]|\\.)*"|\[[^\]]*\])'
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def banned(style: str) -> dict[str, str]:
    """Return each banned phrase with what to write instead, from the table of STYLE.md."""
    rows = re.findall(r"^\| (.+) \| (.+) \|$", style, re.MULTILINE)[1:]
    return {phrase: instead for instead, phrases in rows for phrase in phrases.split(", ")}


BANNED = banned(STYLE.read_text(encoding="utf-8"))
# Not in a path, a flag or an identifier: docs/knobs.md, --no-beside, `beside`.
PHRASES = re.compile(
    rf"(?<![\w/.`-])(?:{'|'.join(BANNED)})(?![\w/`-]|\.\w)".replace(" ", r"\s+"), re.IGNORECASE
)


def strings(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text, and whether it is a message (no docstring), of each text of a module."""
    docstrings, parts = set(), set()
    nodes = list(ast.walk(ast.parse(source)))
    for node in nodes:
        if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr):
            docstrings.add(id(node.body[0].value))
        elif isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            words = [
                str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
            ]
            yield node.lineno, "".join(words), True
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts
        ):
            yield node.lineno, node.value, id(node) not in docstrings


def problems(line: int, text: str, *, message: bool) -> Iterator[str]:
    """Yield each banned phrase of a text, and of a message each sentence that is too long."""
    for found in PHRASES.finditer(text):
        phrase = " ".join(found[0].lower().split())
        yield f"{line + text[: found.start()].count(chr(10))}: '{phrase}': write {BANNED[phrase]}"
    for sentence in SENTENCE_END.split(text) if message else ():
        words = sentence.split()
        if len(words) > MOST_WORDS and PROSE.search(sentence):
            yield f"{line}: a sentence of {len(words)} words: {' '.join(words[:8])} ..."


def in_file(path: Path) -> list[str]:
    """Return `line: problem` for all that a file shows to a user."""
    source = path.read_text(encoding="utf-8")
    prose = re.sub(r"`[^`\n]+`", "`code`", source)
    if path.suffix == ".py":
        texts = strings(source)
    elif path.suffix == ".json":
        shown = SHOWN.finditer(source)
        texts = ((source.count("\n", 0, one.start()) + 1, one[0], True) for one in shown)
    else:
        texts = iter([(1, prose, False)])
    return [
        each
        for line, text, is_message in texts
        if " " in text
        for each in problems(line, text, message=is_message)
    ]


def main(only: list[str]) -> int:
    """Print each problem, and each path that is clean but still listed; return the exit code."""
    printed = []
    dirty = set()
    for path in sorted({path for pattern in READ for path in ROOT.glob(pattern)} - {STYLE}):
        name = path.relative_to(ROOT).as_posix()
        listed = {folder for folder in NOT_CLEAN if f"{name}/".startswith(f"{folder}/")}
        found = [f"{name}:{problem}" for problem in in_file(path)]
        dirty |= listed if found else set()
        if name.startswith(tuple(only)) if only else not listed:
            printed += found
    if not only:
        clean = (folder for folder in NOT_CLEAN if folder not in dirty)
        printed += [f"{folder} is clean: remove it from NOT_CLEAN" for folder in clean]
    sys.stdout.write("".join(f"{line}\n" for line in printed))
    return 1 if printed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
