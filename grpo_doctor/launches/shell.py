"""Bash scripts, read and never run: the commands in them, with literal variables put in.

Read are continued lines, quotes, comments, assignments, exports, arrays, defaults (`${X:-8}`) and
sums (`$((A * B))`, `$(expr A / B)`). What only running it would tell, such as `$(nvidia-smi ...)`,
counts as unset.
Of an `if` all branches are read; what one branch sets, a later one does not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from grpo_doctor.launches.expansion import arithmetic, braced, calculation, cut
from grpo_doctor.launches.model import Source
from grpo_doctor.launches.words import Command, Word

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=\(")
_REDIRECTION = re.compile(r"(?:\d|&)?(<<<|<<-?|>>|[<>])&?[ \t]*")
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?!$])")
_USED = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")
_EXPORTS_ALL = re.compile(r"^\s*set\s+(?:-\w*a|-o\s+allexport)", re.MULTILINE)
_ABOVE = re.compile(r"[)\"](/\.\.(?:/\.\.)*)")
_OPENING = frozenset({"if", "then", "else", "elif", "do", "while", "until", "{", "time", "!"})
_CLOSING = frozenset({"fi", "done", "}", "esac"})
_EXPORTS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_ENDS_WORD = frozenset(" \t\n;&|()<>")


def commands(text: str, file: str | None, environment: Mapping[str, str]) -> Iterator[Command]:
    """Each command of a script that is not an assignment, in order.

    Args:
        text: the script.
        file: its name, for what is said of its lines; None for one line that a user typed.
        environment: what is set where the script is started.
    """
    return _Reader(text, file, environment).commands()


class _Reader:
    def __init__(self, text: str, file: str | None, environment: Mapping[str, str]) -> None:
        self.text = text.replace("\r\n", "\n")
        self.file = file
        self.at = 0
        self.variables: dict[str, tuple[Word, ...]] = {
            name: (Word(value, Source(f"{name}={value}", file="the environment")),)
            for name, value in environment.items()
        }
        self.inherited = frozenset(environment)
        self.exported: dict[str, Word] = {}
        self.later_branch = 0
        self.unset: list[str] = []

    def commands(self) -> Iterator[Command]:
        while self.at < len(self.text):
            command = self._command(self._statement())
            if command is not None:
                yield command

    def _source(self, begin: int) -> Source:
        line = self.text.count("\n", 0, begin) + 1 if self.file else None
        return Source(self.text[begin : self.at].strip(), file=self.file, line=line)

    # -- statements

    def _command(self, words: list[Word]) -> Command | None:
        while words and words[0].text in _OPENING:
            self.later_branch += words[0].text in ("else", "elif")
            words = words[1:]
        if not words or words[0].text in _CLOSING:
            if words and words[0].text == "fi":
                self.later_branch = 0
            return None
        own: dict[str, Word] = {}
        while words and (match := _ASSIGNMENT.fullmatch(words[0].text)):
            own[match[1]] = words[0].with_text(match[3])
            words = words[1:]
        if not words:
            for name, word in own.items():
                self._assign(name, word)
            return None
        if words[0].text in _EXPORTS:
            self._declare(words[0].text, words[1:])
            return None
        return Command(tuple(words), {**self.exported, **own}, self._not_exported(own))

    def _not_exported(self, own: Mapping[str, Word]) -> dict[str, Word]:
        if _EXPORTS_ALL.search(self.text):
            return {}
        visible = {*self.exported, *self.inherited, *own, *_USED.findall(self.text)}
        return {n: words[0] for n, words in self.variables.items() if words and n not in visible}

    def _assign(self, name: str, word: Word) -> None:
        if self.later_branch and name in self.variables:
            return
        if not word.unset:
            self.variables[name] = (word,)
        if name in self.exported:
            self.exported[name] = word

    def _declare(self, how: str, words: list[Word]) -> None:
        for word in words:
            match = _ASSIGNMENT.fullmatch(word.text)
            name = match[1] if match else word.text
            if match:
                self._assign(name, word.with_text(match[3]))
            if how == "export" and name in self.variables:
                self.exported[name] = self.variables[name][0]

    def _statement(self) -> list[Word]:
        words: list[Word] = []
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter in " \t" or self.text.startswith("\\\n", self.at):
                self.at += 1 if letter in " \t" else 2
            elif letter == "#":
                self._skip_line()
            elif self.text.startswith("&>", self.at) or _REDIRECTION.match(self.text, self.at):
                self._redirection()
            elif letter in _ENDS_WORD:
                self.at += 1
                if words or letter == "\n":
                    return words
            elif (match := _ARRAY.match(self.text, self.at)) and not words:
                self._array(match)
            else:
                words += self._word()
        return words

    def _skip_line(self) -> None:
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def _redirection(self) -> None:
        match = _REDIRECTION.match(self.text, self.at)
        self.at = match.end() if match else self.at + 2
        target = self._word()
        if match and match[1] in ("<<", "<<-") and target:
            end = re.compile(rf"^\s*{re.escape(target[0].text)}[ \t]*$", re.MULTILINE)
            last = end.search(self.text, self.at)
            self.at = last.end() if last else len(self.text)

    def _array(self, match: re.Match[str]) -> None:
        self.at = match.end()
        items = list(self.variables.get(match[1], ())) if match[2] else []
        while self.at < len(self.text) and self.text[self.at] != ")":
            letter = self.text[self.at]
            if letter == "#":
                self._skip_line()
            elif letter in _ENDS_WORD or self.text.startswith("\\\n", self.at):
                self.at += 1 if letter in _ENDS_WORD else 2
            else:
                items += self._word()
        self.at += 1
        if not (self.later_branch and match[1] in self.variables and not match[2]):
            self.variables[match[1]] = tuple(items)

    # -- words

    def _word(self) -> list[Word]:
        """The word that begins here: several where an array stands in it, none where nothing."""
        begin, text, quoted = self.at, "", False
        array_words: list[Word] = []
        self.unset = []
        while self.at < len(self.text) and self.text[self.at] not in _ENDS_WORD:
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
                inside, words = self._double_quoted()
                text, quoted = text + inside, quoted or not words
                array_words += words
            elif letter in "$`":
                value, words = self._dollar()
                text += value
                array_words += words
            else:
                text += letter
                self.at += 1
        unset = tuple(dict.fromkeys(self.unset))
        source = self._source(begin)
        if array_words and not text:
            return array_words
        if not text and not quoted and not unset:
            return []
        if not quoted and not unset and source.text.startswith("$") and " " in text:
            return [Word(part, source) for part in text.split()]
        return [Word(text, source, unset)]

    def _until(self, mark: str) -> str:
        end = self.text.find(mark, self.at)
        end = len(self.text) if end < 0 else end
        text, self.at = self.text[self.at : end], end + 1
        return text

    def _double_quoted(self) -> tuple[str, list[Word]]:
        text, array_words = "", []
        while self.at < len(self.text) and self.text[self.at] != '"':
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
        """What begins with `$` or a backquote: its text, or the words of a whole array."""
        begin = self.at
        if self.text[begin] == "`":
            self.at += 1
            command = self._until("`")
            return self._substituted(command, f"`{command}`")
        if self.text.startswith("$((", begin):
            self.at += 3
            sum_text = self._balanced("(", ")")
            self.at += self.text.startswith(")", self.at)
            value = arithmetic(sum_text, self.variables)
            return self._unknown(f"$(({sum_text}))") if value is None else (value, [])
        if self.text.startswith("$(", begin):
            self.at += 2
            command = self._balanced("(", ")")
            return self._substituted(command, f"$({command})")
        if self.text.startswith("${", begin):
            self.at += 2
            return self._braced(self._balanced("{", "}"))
        match = _VARIABLE.match(self.text, begin)
        self.at = match.end() if match else begin + 1
        return self._braced(match[1]) if match else ("$", [])

    def _substituted(self, command: str, written: str) -> tuple[str, list[Word]]:
        """`$(...)`: the script's own folder and a sum are known without running anything."""
        if "dirname" in command and ("$0" in command or "BASH_SOURCE" in command) and self.file:
            above = "".join(_ABOVE.findall(command)).count("..")
            folders = PurePosixPath(self.file).parents
            return str(folders[min(above, len(folders) - 1)]), []
        value = calculation(command, self.variables)
        return self._unknown(written) if value is None else (value, [])

    def _balanced(self, opening: str, closing: str) -> str:
        begin, depth = self.at, 1
        while self.at < len(self.text) and depth:
            depth += {opening: 1, closing: -1}.get(self.text[self.at], 0)
            self.at += 1
        return self.text[begin : self.at - 1]

    def _braced(self, text: str) -> tuple[str, list[Word]]:
        if (shortened := cut(text, self.variables)) is not None:
            return shortened, []
        name, otherwise, is_array = braced(text)
        if name in ("@", "*"):
            return "", []  # our script has no arguments
        words = self.variables.get(name or "", ())
        if words:
            return ("", list(words)) if is_array else (words[0].text, [])
        if name is not None and otherwise:
            inner = _Reader(otherwise, None, {})
            inner.variables = self.variables
            return " ".join(word.text for word in inner._statement()), []
        if text.endswith("-"):  # ${X:-}: nothing, and meant so
            return "", []
        return self._unknown(name or text)

    def _unknown(self, name: str) -> tuple[str, list[Word]]:
        self.unset.append(name)
        return "", []
