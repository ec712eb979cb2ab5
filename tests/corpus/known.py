"""The recorded jobs that are known to be answered wrongly: `known_wrong.json`, kept by a command.

`python -m tests.corpus accept` writes it. The test holds the replay to it in both directions, so
that nothing gets worse unseen, and nothing that is right now can be lost again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from tests.corpus.score import Answer

FILE = Path(__file__).with_name("known_wrong.json")
Known = dict[str, str]  # "source/name": what of S (state), R (ranks), C (class) is right


def wrong_of(answers: Iterable[Answer]) -> Known:
    """What is answered wrongly, and how."""
    return {
        f"{answer.source}/{answer.name}": answer.marks for answer in answers if not answer.right
    }


def known_wrong(file: Path = FILE) -> Known:
    """What is known to be."""
    return msgspec.json.decode(file.read_bytes(), type=Known)


def accept(answers: Iterable[Answer], file: Path = FILE) -> None:
    """Makes what is wrong now the known."""
    content = msgspec.json.encode(dict(sorted(wrong_of(answers).items())))
    file.write_bytes(msgspec.json.format(content, indent=1) + b"\n")
