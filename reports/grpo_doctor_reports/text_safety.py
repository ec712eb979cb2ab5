"""Make a stranger's text safe to show: visible, one line, bounded.

A report is drawn from names that came out of other people's processes. Escaping for HTML is the
template engine's job; what is left is text that is harmless as markup and still lies to the reader:
terminal escapes, right-to-left overrides, zero-width characters, lone surrogates, endless lines.
"""

from __future__ import annotations

import unicodedata

NAME_LIMIT = 200
PROSE_LIMIT = 2_000

_LINE_BREAKS = frozenset("\n\r\v\f\x85\u2028\u2029")
_CONTROL_PICTURES_START = 0x2400
_DELETE = 0x7F
_DELETE_PICTURE = "\u2421"


def clean(text: str, limit: int = NAME_LIMIT) -> str:
    """Return `text` on one line, at most `limit` characters, every invisible character visible."""
    return _visible(_cut(text, limit), keep_newlines=False)


def clean_block(text: str, limit: int = PROSE_LIMIT) -> str:
    """Return `text` like `clean`, but with its line breaks kept as newlines."""
    unified = _cut(text, limit).replace("\r\n", "\n")
    return _visible(unified, keep_newlines=True).strip("\n")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _visible(text: str, *, keep_newlines: bool) -> str:
    if text.isprintable():
        return text
    return "".join(_visible_character(character, keep_newlines) for character in text)


def _visible_character(character: str, keep_newlines: bool) -> str:
    if character.isprintable():
        return character
    if character in _LINE_BREAKS:
        return "\n" if keep_newlines else " "
    if character == "\t" or unicodedata.category(character) == "Zs":
        return " "
    return _picture(character)


def _picture(character: str) -> str:
    code = ord(character)
    if unicodedata.category(character) == "Cs":
        return "\ufffd"
    if code < 0x20:
        return chr(_CONTROL_PICTURES_START + code)
    return _DELETE_PICTURE if code == _DELETE else f"⟨U+{code:04X}⟩"
