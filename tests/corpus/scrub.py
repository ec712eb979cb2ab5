"""Recorded evidence without the paths of the machine on which it was recorded.

A path is replaced by one that looks the same to the reasoning (an installed package stays one), the
same everywhere, in the evidence's texts and in its dumps. `python -m tests.corpus pack` refuses
what it would change the verdict of.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import msgspec

from grpo_doctor_probes.evidence import Evidence, FlightDump

_ROOT = Path(__file__).resolve().parents[2]
# What lies beside the checkout is of this machine as well.
_WORK = rf"(?<![\w.-]){re.escape(str(_ROOT.parent))}(?![\w.-])"
_RULES = (
    # A command line is cut somewhere, so that a path may end anywhere in it.
    (rf"{_WORK}/[^/\s\"'\\]+/\.v[^/\s\"'\\]*", "/opt/venv"),
    (rf"{_WORK}/((?:env-|venv)[^/\s\"'\\]*)", r"/opt/\1"),
    (r"/root/\.pyenv/versions/[^/\s\"'\\]+", "/usr/local"),
    (r"(?:/root|/home/[^/\s\"'\\]+)(?![\w.-])", "/home/me"),
    (rf"{_WORK}/[^/\s\"'\\:]+", "/srv/grpo"),
    (_WORK, "/srv"),
)
_PATTERNS = tuple((re.compile(pattern), instead) for pattern, instead in _RULES)
_BYTES = tuple((re.compile(pattern.encode()), instead.encode()) for pattern, instead in _RULES)
_PICKLE = b"\x80"


class PersonalPathError(Exception):
    """A dump in a form in which paths can't be replaced has some; the message names it."""


def scrubbed(evidence: Evidence) -> Evidence:
    """The same evidence of a machine that is nobody's, without the log of the bench itself."""
    bare = replace(
        evidence, dumps=(), logs=tuple(log for log in evidence.logs if _of_job(log.path))
    )
    clean = msgspec.convert(_texts(msgspec.to_builtins(bare)), Evidence)
    return replace(clean, dumps=tuple(map(_dump, evidence.dumps)))


def _of_job(path: str) -> bool:
    return Path(path).parent != _ROOT.parent


def _texts(value: object) -> object:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return [_texts(entry) for entry in value]
    if isinstance(value, dict):
        return {_texts(key): _texts(entry) for key, entry in value.items()}
    return value


@lru_cache(maxsize=4096)
def _text(text: str) -> str:
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def _dump(dump: FlightDump) -> FlightDump:
    data = dump.data
    for pattern, instead in _BYTES:
        data = pattern.sub(instead, data)
    if data != dump.data and data.startswith(_PICKLE):  # its strings have lengths
        raise PersonalPathError(f"the pickle of {dump.source}, rank {dump.rank}, has paths of here")
    return replace(dump, data=data, source=_text(dump.source), problem=_text(dump.problem))
