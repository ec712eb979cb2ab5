"""Words of a shell's text, with variables, arrays, sums and defaults put in."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from pathlib import PurePosixPath

from grpo_doctor.bounded import SCRIPT, Budget
from grpo_doctor.launches.expansion import arithmetic, braced, calculation, changed
from grpo_doctor.launches.model import Source
from grpo_doctor.launches.words import Word

ENDS_WORD = frozenset(" \t\n;&|()<>")
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?!$])")
_LIST = re.compile(r"\[@\]|\$\{?@")
_ABOVE = re.compile(r"[)\"](/\.\.(?:/\.\.)*)")
_WITHOUT_NPU = re.compile(r"npu[\s\S]*\|\|\s*echo\s+['\"]?(\w+)['\"]?\s*$")  # GPUs are what we know
_LONGEST_COMMAND = 4000  # of a substitution whose value the text alone says
_WORD = 16  # what a word costs, next to its letters
_PATHS = ("basename", "dirname", "realpath", "readlink", "echo")


class Lexer:
    """Reads words from `text` at `at`; `unset` collects what has no value in the word at hand."""

    def __init__(self, text: str, file: str | None, budget: Budget | None = None) -> None:
        self.text = text
        self.file = file
        self.budget = budget or Budget(SCRIPT)
        self.at = 0
        self.variables: dict[str, tuple[Word, ...]] = {}
        self.arguments: tuple[Word, ...] = ()
        self.unset: list[str] = []

    def source(self, begin: int) -> Source:
        """Return where the text from `begin` on stands."""
        line = bisect_left(_line_ends(self.text), begin) + 1 if self.file else None
        return Source(self.text[begin : self.at].strip(), file=self.file, line=line)

    def inside(self, text: str) -> Lexer:
        """Return a reader of a text that stands inside this one, with the same variables."""
        inner = Lexer(text, self.file, self.budget)
        inner.variables, inner.arguments = self.variables, self.arguments
        return inner

    def blank(self, letters: str | frozenset[str]) -> int:
        """How much begins here that means nothing: one of the letters, or a line continued."""
        if self.text.startswith("\\\n", self.at):
            return 2
        return int(self.at < len(self.text) and self.text[self.at] in letters)

    def skip_line(self) -> None:
        """Move to the end of the line."""
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def words(self, until: str = "") -> list[Word]:
        """Return all words of the text, or of what a mark ends, in which comments may stand."""
        found: list[Word] = []
        while self.at < len(self.text) and self.text[self.at] != until:
            if until and self.text[self.at] == "#":
                self.skip_line()
            elif blank := self.blank(ENDS_WORD):
                self.at += blank
            else:
                found += self.word()
        return found

    def word(self) -> list[Word]:
        """The word that begins here: several for an array, none for nothing."""
        begin, text, quoted = self.at, "", False
        array_words: list[Word] = []
        self.unset = []
        while self.at < len(self.text) and self.text[self.at] not in ENDS_WORD:
            letter = self.text[self.at]
            if self.text.startswith("\\\n", self.at):
                break
            if letter == "\\":
                text += self.text[self.at + 1 : self.at + 2]
                self.at += 2
            elif letter == "'" or self.text.startswith("$'", self.at):
                self.at += 1 if letter == "'" else 2
                text += self._until("'")
                quoted = True
            elif letter == '"':
                self.at += 1
                inside, words = self.double_quoted()
                text, quoted = text + inside, quoted or not words
                array_words += words
            elif letter in "$`":
                value, words = self._dollar()
                text += value
                array_words += words
            else:
                text += letter
                self.at += 1
        self.budget.spend(_WORD + self.at - begin)
        unset = tuple(dict.fromkeys(self.unset))
        source = self.source(begin)
        if array_words and not text:
            return array_words
        if (
            not text
            and not unset
            and (not quoted or "[@]" in source.text or "$@" in source.text or "{@" in source.text)
        ):
            return []
        if not quoted and source.text.startswith("$") and " " in text:
            return self._split(text, source, unset)
        return [Word(text, source, unset)]

    def _split(self, text: str, source: Source, unset: tuple[str, ...]) -> list[Word]:
        """Return the words of a variable; what it lacks is looked up where it was put together."""
        if not unset:
            return [Word(part, source) for part in text.split()]
        name = source.text.strip("${}")
        made = self.variables.get(name, ())
        written = made[0].source.text.partition("=")[2] if made else ""
        inner = self.inside(written[1:-1] if written.startswith('"') else "")
        inner.variables = {k: v for k, v in self.variables.items() if k != name}
        parts = inner.words()
        if " ".join(part.text for part in parts).split() != text.split():  # set again since
            return [Word(text, source, unset)]
        return [Word(part.text, source, part.unset) for part in parts]

    def _until(self, mark: str) -> str:
        end = self.text.find(mark, self.at)
        end = len(self.text) if end < 0 else end
        text, self.at = self.text[self.at : end], end + 1
        return text

    def double_quoted(self, end: str = '"') -> tuple[str, list[Word]]:
        """Return text up to `end`, variables put in; and the words of an array in it."""
        text, array_words = "", []
        while self.at < len(self.text) and self.text[self.at] != end:
            letter = self.text[self.at]
            if letter == "\\" and self.text[self.at + 1 : self.at + 2] in tuple('$"`\\\n'):
                text += self.text[self.at + 1].strip("\n")
                self.at += 2
            elif letter in "$`":
                value, words = self._dollar()
                text += value
                array_words += words
            else:
                text += letter
                self.at += 1
        self.at += 1
        return text, array_words

    def _dollar(self) -> tuple[str, list[Word]]:
        """Return what begins with `$` or a backquote: its text, or the words of a whole array."""
        begin = self.at
        with self.budget.deeper():
            text, words = self._expanded()
        self.budget.spend(self.at - begin + len(text) + _WORD * len(words))
        return text, words

    def _expanded(self) -> tuple[str, list[Word]]:
        begin = self.at
        if self.text[begin] == "`":
            self.at += 1
            command = self._until("`")
            return self._substituted(command, f"`{command}`")
        if self.text.startswith("$((", begin):
            self.at += 1
            sum_text = self.sum_text()
            value = arithmetic(self._put_in(sum_text), self.variables)
            return self._unknown(f"$(({sum_text}))") if value is None else (value, [])
        if self.text.startswith("$(", begin):
            self.at += 2
            command = self.balanced("(", ")")
            return self._substituted(command, f"$({command})")
        if self.text.startswith("${", begin):
            self.at += 2
            return self._braced(self.balanced("{", "}"))
        match = _VARIABLE.match(self.text, begin)
        self.at = match.end() if match else begin + 1
        return self._braced(match[1]) if match else ("$", [])

    def _put_in(self, sum_text: str) -> str:
        """Return a sum whose `${X:-8}` have their values."""
        if "${" not in sum_text and "$(" not in sum_text:
            return sum_text
        inner = self.inside(sum_text)
        text, _ = inner.double_quoted("\0")
        return "" if inner.unset else text

    def _substituted(self, command: str, written: str) -> tuple[str, list[Word]]:
        """`$(...)`: the script's own folder, a part of a path and a sum need no running."""
        if len(command) > _LONGEST_COMMAND:
            return self._unknown(written[:_LONGEST_COMMAND])
        if "dirname" in command and ("$0" in command or "BASH_SOURCE" in command) and self.file:
            above = "".join(_ABOVE.findall(command)).count("..")
            folders = PurePosixPath(self.file).parents
            return str(folders[min(above, len(folders) - 1)]), []
        if command.lstrip().startswith("#") and "\n" not in command:
            return "", []  # a comment between options
        if (without := _WITHOUT_NPU.search(command)) is not None:
            return without[1], []
        program = command.strip().partition(" ")[0]
        if program in _PATHS and not set(command) & set("|;&<>`"):
            words = [w for w in self.inside(command).words()[1:] if not w.text.startswith("-")]
            if words and not any(word.unset for word in words):
                return _path(program, words), []
        value = calculation(command, self.variables)
        return self._unknown(written) if value is None else (value, [])

    def balanced(self, opening: str, closing: str) -> str:
        """Return the text up to the mark that closes what is open here."""
        begin, depth = self.at, 1
        while self.at < len(self.text) and depth:
            depth += {opening: 1, closing: -1}.get(self.text[self.at], 0)
            self.at += 1
        return self.text[begin : self.at - 1]

    def sum_text(self) -> str:
        """Return what stands between the `((` that begins here and its `))`."""
        self.at += 2
        text = self.balanced("(", ")")
        self.at += self.text.startswith(")", self.at)
        return text

    def value(self, name: str) -> tuple[Word, ...] | None:
        """The words of a variable or of the script's arguments; None if it is never set."""
        if name in ("@", "*"):
            return self.arguments
        if name == "#":
            return (Word(str(len(self.arguments)), Source("$#")),)
        if name.isdigit() and name != "0":
            return self.arguments[int(name) - 1 : int(name)] or None
        return self.variables.get(name)

    def _braced(self, text: str) -> tuple[str, list[Word]]:
        name, mark, more, index = braced(text)
        if name is None:
            return self._unknown(text)
        words = self.value(name)
        if text.startswith("#") and text != "#":
            is_known = index in ("@", "*") and words is not None
            is_known = is_known and not any(word.unset for word in words or ())
            return (str(len(words or ())), []) if is_known else self._unknown(text)
        if index in ("@", "*") or name in ("@", "*"):
            if words is None and mark not in (":-", "-", "+"):
                return self._unknown(name)
            is_cut = mark == ":" and more.isdigit()
            return self._list(words or (), int(more) - (name in "@*") if is_cut else 0, index)
        return self._one_of(name, words, mark, more, index)

    def _list(self, words: tuple[Word, ...], begin: int, index: str) -> tuple[str, list[Word]]:
        """Return the words of an array; with `[*]` they become one."""
        words = words[max(begin, 0) :]
        if index != "*":
            return "", list(words)
        self.unset += [unset for word in words for unset in word.unset]
        return " ".join(word.text for word in words), []

    def _one_of(
        self, name: str, words: tuple[Word, ...] | None, mark: str, more: str, index: str
    ) -> tuple[str, list[Word]]:
        if index.isdigit() and words is not None:
            words = words[int(index) : int(index) + 1]
        if mark == "+":
            return self._otherwise(more) if words and words[0].text else ("", [])
        has_value = words and (words[0].text or words[0].unset or mark in ("", "-", "?"))
        if not has_value and mark in (":-", ":=", "-", "="):
            return self._otherwise(more)
        if not words:
            return self._unknown(name) if words is None else ("", [])
        self.unset += words[0].unset
        text = changed(words[0].text, mark, more) if words[0].text else ""
        return (text, []) if text is not None else self._unknown(name)

    def _otherwise(self, text: str) -> tuple[str, list[Word]]:
        inner = self.inside(text)
        words = inner.words()
        self.unset += [unset for word in words for unset in word.unset]
        return " ".join(word.text for word in words), []

    def _unknown(self, name: str) -> tuple[str, list[Word]]:
        self.unset.append(name)
        return "", []


@functools.lru_cache(maxsize=16)
def _line_ends(text: str) -> list[int]:
    return [match.start() for match in re.finditer("\n", text)]


def _path(program: str, words: list[Word]) -> str:
    if program == "basename":
        return PurePosixPath(words[0].text).name.removesuffix(words[1].text if words[1:] else "")
    if program == "dirname":
        return str(PurePosixPath(words[0].text).parent)
    return " ".join(word.text for word in words)
