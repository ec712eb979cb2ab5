"""Statements of a shell's text: their words, what ends them, and where they write."""

from __future__ import annotations

import re

from grpo_doctor.bounded import Budget
from grpo_doctor.launches.lexing import ENDS_WORD, Lexer
from grpo_doctor.launches.words import Word

DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})
_ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=\(")
_PLACEHOLDER = re.compile(r"<[A-Za-z][\w ./-]*>")  # what a page leaves to its reader
_REDIRECTION = re.compile(r"(?:\d|&)?(<<<|<<-?|>>|[<>])[&|]?[ \t]*")


class Statements(Lexer):
    """Reads one statement after the other.

    Of the last one: `ended` is the mark after it, `here_text` its here-document, `target` the file
    that it writes. While `is_live` is false, nothing that it assigns is kept.
    """

    def __init__(self, text: str, file: str | None, budget: Budget) -> None:
        super().__init__(text, file, budget)
        self.is_live = True
        self.ended = ""
        self.here_text: str | None = None
        self.target = ""
        self._here: tuple[str, bool, bool] | None = None

    def to_statement(self, until: frozenset[str]) -> bool:
        """Move to where the next statement begins; False at the end."""
        begin = self.at
        is_there = self._reaches_statement(until)
        self.budget.spend(1 + self.at - begin)
        return is_there

    def _reaches_statement(self, until: frozenset[str]) -> bool:
        while self.at < len(self.text):
            letter = self.text[self.at]
            if self.text.startswith(";;", self.at) and ";;" in until:
                return False
            if letter == "#":
                self.skip_line()
            elif blank := self.blank(" \t\n;&|)" if self.is_sum() else " \t\n;&|()"):
                self.at += blank
            else:
                return True
        return False

    def is_sum(self) -> bool:
        """Return whether `((` stands here."""
        return self.text.startswith("((", self.at)

    def test(self) -> list[Word]:
        """Return the words of `[[ ... ]]`, operators among them."""
        words: list[Word] = []
        while self.at < len(self.text):
            begin = self.at
            if blank := self.blank(" \t\n"):
                self.at += blank
            elif self.text[begin : begin + 2] in ("&&", "||"):
                self.at += 2
                words.append(Word(self.text[begin : self.at], self.source(begin)))
            elif self.text[begin] in "()<>&|;":
                self.at += 1
                words.append(Word(self.text[begin], self.source(begin)))
            else:
                words += self.word()
                if words and words[-1].text == "]]":
                    break
        self.statement()
        return words

    def statement(self) -> list[Word]:
        """Return the words up to the mark that ends the statement."""
        words: list[Word] = []
        self.ended = ""
        while self.at < len(self.text):
            letter = self.text[self.at]
            if blank := self.blank(" \t"):
                self.at += blank
            elif letter == "#":
                self.skip_line()
            elif (match := _PLACEHOLDER.match(self.text, self.at)) is not None:
                begin, self.at = self.at, match.end()
                words.append(Word("", self.source(begin), (match[0],)))
            elif self.text.startswith("&>", self.at) or _REDIRECTION.match(self.text, self.at):
                self._redirection()
            elif letter in ENDS_WORD:
                self._end(letter)
                break
            elif (match := _ARRAY.match(self.text, self.at)) and not (
                words and words[0].text not in DECLARES
            ):
                self._array(match)
            else:
                words += self.word()
        return words

    def _end(self, letter: str) -> None:
        """The end of a statement; a here-document stands on the lines after it."""
        if self.text.startswith(";;", self.at):
            self.ended = ";;"
            return
        self.ended = (
            letter * 2 if self.text.startswith(letter * 2, self.at) and letter in "&|" else letter
        )
        self.at += len(self.ended)
        if self._here is None:
            return
        if letter != "\n":  # cat <<EOF | tee file
            self.skip_line()
            self.at += 1
        end, is_quoted, strips = self._here
        self._here = None
        last = re.compile(rf"^[ \t]*{re.escape(end)}[ \t]*$", re.MULTILINE).search(
            self.text, self.at
        )
        text = self.text[self.at : last.start() if last else len(self.text)]
        self.at = last.end() if last else len(self.text)
        text = re.sub(r"^\t+", "", text, flags=re.MULTILINE) if strips else text
        self.here_text = text if is_quoted else self.inside(text).double_quoted("\0")[0]

    def skip_blanks(self) -> None:
        """Move to what is not a space."""
        while blank := self.blank(" \t\n"):
            self.at += blank

    def _redirection(self) -> None:
        match = _REDIRECTION.match(self.text, self.at)
        self.at = match.end() if match else self.at + 2
        target = self.word()
        if match is None or not target:
            return
        if match[1] in ("<<", "<<-"):
            is_quoted = target[0].source.text != target[0].text
            self._here = (target[0].text, is_quoted, match[1] == "<<-")
        elif match[1] in (">", ">>") and not match[0][0].isdigit():
            self.target = target[0].text

    def _array(self, match: re.Match[str]) -> None:
        self.at = match.end()
        items = list(self.variables.get(match[1], ())) if match[2] else []
        items += self.words(until=")")
        self.at += 1
        if self.is_live:
            self.variables[match[1]] = tuple(items)
