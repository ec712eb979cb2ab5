"""Bash scripts, read and never run: the commands in them, with literal variables put in.

Read are continued lines, quotes, comments, assignments, exports, arrays, defaults (`${X:-8}`),
sums, functions, `source`, `getopts`, here-documents, what `set --` says. Of `if` and `case` the
branch counts that runs; where only running would show it, all are read, and a variable that they
leave with different values is open: it has no value, and its values are named. A loop is read for
each of its first items. What only running a command would show, such as `$(nvidia-smi ...)`,
counts as unset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from grpo_doctor.bounded import SCRIPT, Budget
from grpo_doctor.launches.conditions import holds, matches, negated
from grpo_doctor.launches.files import UnreadableFileError, located, read_text
from grpo_doctor.launches.model import Source
from grpo_doctor.launches.statements import DECLARES, Statements
from grpo_doctor.launches.words import Command, Word

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_FUNCTION = re.compile(
    r"(?:function[ \t]+([\w:-]+)[ \t]*(?:\([ \t]*\))?|([A-Za-z_][\w:-]*)[ \t]*\([ \t]*\))\s*\{"
)
_KEYWORD = re.compile(
    r"(?:if|then|elif|else|fi|for|select|while|until|do|done|case|esac|\{|\}|!|time)(?=[\s;&|()]|$)"
)
_IN = re.compile(r"\bin\b")
_ESAC = re.compile(r"esac\b")
_USED = re.compile(r"\$\{?[#!]?([A-Za-z_]\w*)")
_EXPORTS_ALL = re.compile(r"^[ \t]*set[ \t]+(?:-\w*a|-o\s+allexport)", re.MULTILINE)
_READS = frozenset({"read", "mapfile", "readarray"})
_MOST_ITEMS = 8  # of a loop
_DEEPEST = 12  # of functions and scripts within each other
Variables = dict[str, tuple[Word, ...]]
State = tuple[Variables, dict[str, Word]]


def commands(  # noqa: PLR0913 - what a script is started with
    text: str,
    file: str | None,
    environment: Mapping[str, str],
    folder: Path | None = None,
    arguments: Sequence[Word] = (),
    budget: Budget | None = None,
) -> Iterator[Command]:
    """Yield each command of a script that is not an assignment, in order.

    Args:
        text: the script.
        file: its name, for messages about its lines; None for one line that a user typed.
        environment: what is set where the script is started.
        folder: where it is started, for the scripts that it sources.
        arguments: its own.
        budget: what reading it may cost; that of one script where left out.
    """
    reader = _Reader(text, file, folder, budget or Budget(SCRIPT))
    reader.variables = {
        name: (Word(value, Source(f"{name}={value}", file="the environment")),)
        for name, value in environment.items()
    }
    reader.inherited = frozenset(environment)
    reader.arguments = tuple(arguments)
    yield from reader.run()


@dataclass(slots=True)
class _Branches:
    """Those of an `if` or `case`: what held before, whether one ran, the states that may follow."""

    before: State
    was_live: bool
    is_taken: bool = False
    ends: list[State] = field(default_factory=list)


class _Reader(Statements):
    def __init__(self, text: str, file: str | None, folder: Path | None, budget: Budget) -> None:
        super().__init__(text.replace("\r\n", "\n"), file, budget)
        self.budget.spend(len(text) // 16)
        self.folder = folder
        self.inherited: frozenset[str] = frozenset()
        self.exported: dict[str, Word] = {}
        self.functions: dict[str, tuple[str, int]] = {}
        self.written: dict[str, str] = {}
        self.depth = 0
        self.status: bool | None = True
        """Of the last command; None where unknown."""
        self.is_test = False
        self.used = frozenset(_USED.findall(self.text))
        self.exports_all = _EXPORTS_ALL.search(self.text) is not None

    # -- control flow

    def run(self, until: frozenset[str] = frozenset()) -> Iterator[Command]:
        """Statements up to a keyword of `until`, at which it stays."""
        with self.budget.deeper():
            yield from self._statements(until)

    def _statements(self, until: frozenset[str]) -> Iterator[Command]:
        while self.to_statement(until):
            if (match := _FUNCTION.match(self.text, self.at)) is not None:
                yield from self._function(match)
            elif (match := _KEYWORD.match(self.text, self.at)) is not None:
                if match[0] in until:
                    return
                compound = self._COMPOUND.get(match[0])
                if match[0] in "!{":
                    yield from self._chain()
                    continue
                self.at = match.end()
                if compound is not None:
                    yield from compound(self)
            else:
                yield from self._chain()

    def _keyword(self) -> str:
        match = _KEYWORD.match(self.text, self.at)
        self.at = match.end() if match else len(self.text)
        return match[0] if match else ""

    def _if(self) -> Iterator[Command]:
        branches, keyword = _Branches(self._state(), self.is_live), "if"
        while keyword in ("if", "elif", "else"):
            is_hit: bool | None = True
            if keyword != "else":
                yield from self.run(frozenset({"then"}))
                self._keyword()
                is_hit = self.status if self.is_test else None
            yield from self._branch(branches, is_hit, frozenset({"elif", "else", "fi"}))
            keyword = self._keyword()
        self._after_branches(branches)

    def _case(self) -> Iterator[Command]:
        self.skip_blanks()
        subject = (self.word() or [Word("", Source(""))])[0]
        match = _IN.search(self.text, self.at)
        self.at = match.end() if match else len(self.text)
        branches = _Branches(self._state(), self.is_live)
        while self.to_statement(frozenset()) and not _ESAC.match(self.text, self.at):
            patterns = [text.strip() for text in self.balanced("(", ")").split("|")]
            found = [matches(subject, text) for text in patterns]
            hit = True if True in found else None if None in found else False
            yield from self._branch(branches, hit, frozenset({";;", "esac"}))
        self.at += len("esac")
        self._after_branches(branches)

    def _branch(
        self, of: _Branches, is_hit: bool | None, until: frozenset[str]
    ) -> Iterator[Command]:
        self.is_live = of.was_live and not of.is_taken and is_hit is not False
        is_open = self.is_live and (is_hit is None or bool(of.ends))
        if is_open:
            self._restore(of.before)
        yield from self.run(until)
        if is_open:
            of.ends.append(self._state())
        of.is_taken |= self.is_live and is_hit is True

    def _after_branches(self, of: _Branches) -> None:
        self.is_live = of.was_live
        if of.ends:
            self._merge(of.ends if of.is_taken else [*of.ends, of.before])

    def _for(self) -> Iterator[Command]:
        self.skip_blanks()
        items: list[Word] = []
        name = ""
        if self.is_sum():
            self.sum_text()
        else:
            head = self.statement()
            name = head[0].text if head else ""
            items = head[2:] if len(head) > 1 and head[1].text == "in" else list(self.arguments)
        self.to_statement(frozenset())
        self._keyword()
        begin = self.at
        open_item = Word("", self.source(begin), (f"{name} of a loop",))
        was_live = self.is_live
        for item in items[:_MOST_ITEMS] or [open_item]:
            self.at = begin
            if self.is_live and name:
                self.variables[name] = (item if not item.unset else open_item,)
            yield from self.run(frozenset({"done"}))
            self.is_live = was_live
        self._keyword()

    def _while(self) -> Iterator[Command]:
        begin = self.at
        was_live = self.is_live
        for _ in range(4 * _MOST_ITEMS):
            self.at = begin
            start = self._state(), self.arguments
            yield from self.run(frozenset({"do"}))
            self._keyword()
            again = self.status if self.is_test else None
            before = self._state()
            self.is_live = was_live and again is not False
            yield from self.run(frozenset({"done"}))
            if self.is_live and again is None:
                self._merge([self._state(), before])
            self.is_live = was_live
            if again is not True or (self._state(), self.arguments) == start:
                break
        self._keyword()

    def _function(self, match: re.Match[str]) -> Iterator[Command]:
        self.at = match.end()
        if self.is_live:
            self.functions[match[1] or match[2]] = (self.text, self.at)
        was_live, self.is_live = self.is_live, False
        yield from self.block()
        self.is_live = was_live

    _COMPOUND: Mapping[str, Callable[[_Reader], Iterator[Command]]] = {
        "if": _if, "case": _case, "for": _for, "select": _for, "while": _while, "until": _while,
    }  # fmt: skip

    def _state(self) -> State:
        self.budget.spend((len(self.variables) + len(self.exported)) // 8)
        return dict(self.variables), dict(self.exported)

    def _restore(self, state: State) -> None:
        self.variables.clear()
        self.variables.update(state[0])
        self.exported = dict(state[1])

    def _merge(self, states: Sequence[State]) -> None:
        """What holds after branches of which one runs: what differs is open."""
        self._restore(states[0])
        self.budget.spend(2 * sum(len(each) for each, _ in states))
        for name in dict.fromkeys(name for variables, _ in states for name in variables):
            values = [variables.get(name) for variables, _ in states]
            first = values[0]
            if any(value is not first and _texts(value) != _texts(first) for value in values):
                self.variables[name] = _open(name, values)
        for _, exported in states[1:]:
            self.exported |= exported
        for name in self.exported:
            self.exported[name] = self.variables.get(name, (self.exported[name],))[0]

    # -- simple commands

    def _chain(self) -> Iterator[Command]:
        """Commands that `&&` and `||` join."""
        was_live = self.is_live
        before: bool | None = True
        joined, skips = "", False
        while True:
            self.is_live = was_live and not skips
            guarded = self._state() if before is None and self.is_live else None
            yield from self._simple_or_block()
            if guarded is not None:
                self._merge([self._state(), guarded])
            self.is_live = was_live
            known = self.status if self.is_test else True
            if skips or (before is None and known is (joined == "&&")):
                known = self.status = before
                self.is_test = self.is_test or skips
            if self.ended not in ("&&", "||"):
                return
            before, joined = known, self.ended
            skips = known is (joined == "||")
            self.skip_blanks()

    def _simple_or_block(self) -> Iterator[Command]:
        match = _KEYWORD.match(self.text, self.at)
        if match is not None and match[0] == "!":
            self.at = match.end()
            self.skip_blanks()
            yield from self._simple()
            self.status = negated(self.status)
        elif match is not None and match[0] == "{":
            self.at = match.end()
            yield from self.block()
            self.statement()
            self.is_test = False
        else:
            yield from self._simple()

    def block(self) -> Iterator[Command]:
        """Yield what stands between braces."""
        yield from self.run(frozenset({"}"}))
        self._keyword()

    def _simple(self) -> Iterator[Command]:
        self.here_text, self.target = None, ""
        if self.is_sum():
            self.sum_text()
            self.status, self.is_test = None, True
            self.statement()
            return
        words = self.test() if self.text.startswith("[[", self.at) else self.statement()
        if not words:
            return
        name = words[0].text
        self.is_test = name in ("[", "[[", "test", "true", "false", ":", "getopts")
        if name == "getopts":
            self.status = self.is_live and self._next_option(words[1:])
        elif self.is_test:
            inside = words[1:] if name == "test" else words[1:-1]
            self.status = holds(inside) if name[0] in "[t" and name != "true" else name != "false"
        if self.is_live and not self.is_test:
            yield from self._command(words)

    def _command(self, words: list[Word]) -> Iterator[Command]:
        own: dict[str, Word] = {}
        while words and (match := _ASSIGNMENT.fullmatch(words[0].text)):
            own[match[1]] = self._added(match, words[0])
            words = words[1:]
        name = words[0].text if words else ""
        if not words:
            for key, word in own.items():
                self._assign(key, word)
        elif name in self.functions and self.depth < _DEEPEST:
            yield from self._call(name, words[1:])
        elif name in ("source", ".") and len(words) > 1:
            yield from self._sourced(words)
        elif not self._built_in(name, words[1:]):
            self._keep_file(words)
            self.budget.spend((len(self.variables) + len(self.used) + len(self.inherited)) // 8)
            environment = {**self.exported, **own}
            yield Command(tuple(words), environment, self._not_exported(own), self.written)

    def _built_in(self, name: str, words: list[Word]) -> bool:
        """Return whether it is a command of the shell that changes variables alone."""
        if name in DECLARES:
            self._declare(name, words)
        elif name == "set" and words and words[0].text == "--":
            self.arguments = tuple(words[1:])
        elif name == "shift":
            by = words[0].text if words else ""
            self.arguments = self.arguments[int(by) if by.isdigit() else 1 :]
        elif name == "unset":
            for word in words:
                self.variables.pop(word.text, None)
                self.exported.pop(word.text, None)
        elif name in _READS:
            names = [word.text for word in words if word.text.isidentifier()]
            self.variables |= {word: _open(word, ()) for word in names}
            if name == "read" and names and self.here_text is not None:
                self._assign(names[-1], words[-1].with_text(self.here_text.strip()))
        else:
            return False
        return True

    def _next_option(self, words: list[Word]) -> bool | None:
        """What `getopts p:m: name` puts into variables."""
        counted = self.variables.get("OPTIND")
        at = int(counted[0].text) if counted and counted[0].text.isdecimal() else 1
        before, given = self.arguments[: at - 1], self.arguments[at - 1 :]
        if len(words) != 2 or (given and given[0].unset):
            return None
        option = given[0].text if given else ""
        is_option = option.startswith("-") and option not in ("-", "--")
        letter, rest = (option[1], option[2:]) if is_option else ("?", "")
        if f"{letter}:" in words[0].text:
            at += not rest
            value = given[0].with_text(rest) if rest or not given[1:] else given[1]
            self._assign("OPTARG", value)
        elif rest:  # -ab is -a -b
            self.arguments = (*before, given[0].with_text(f"-{rest}"), *given[1:])
            at -= 1
        self._assign(words[1].text, words[1].with_text(letter if letter in words[0].text else "?"))
        self._assign("OPTIND", words[1].with_text(str(at + (is_option or option == "--"))))
        return is_option

    def _added(self, match: re.Match[str], word: Word) -> Word:
        before = self.variables.get(match[1], ()) if match[2] else ()
        return word.with_text(f"{before[0].text if before else ''}{match[3]}")

    def _not_exported(self, own: Mapping[str, Word]) -> dict[str, Word]:
        if self.exports_all:
            return {}
        visible = {*self.exported, *self.inherited, *own, *self.used}
        return {n: words[0] for n, words in self.variables.items() if words and n not in visible}

    def _assign(self, name: str, word: Word) -> None:
        self.variables[name] = (word,)
        if name in self.exported:
            self.exported[name] = word

    def _declare(self, how: str, words: list[Word]) -> None:
        for word in words:
            match = _ASSIGNMENT.fullmatch(word.text)
            name = match[1] if match else word.text
            if match:
                self._assign(name, self._added(match, word))
            if how == "export" and self.variables.get(name):
                self.exported[name] = self.variables[name][0]

    def _call(self, name: str, arguments: list[Word]) -> Iterator[Command]:
        kept = self.text, self.at, self.arguments, self.ended
        self.text, self.at = self.functions[name]
        self.arguments = tuple(arguments)
        self.depth += 1
        yield from self.block()
        self.depth -= 1
        self.text, self.at, self.arguments, self.ended = kept

    def _sourced(self, words: list[Word]) -> Iterator[Command]:
        """Yield the commands of a script that runs in this one's own shell."""
        if words[1].unset or self.folder is None or self.depth >= _DEEPEST:
            return
        try:
            path = located(words[1].text, self.folder, words[1].source)
            inner = _Reader(read_text(path), words[1].text, self.folder, self.budget)
        except UnreadableFileError:
            return
        inner.variables, inner.exported = self.variables, self.exported
        inner.functions, inner.written = self.functions, self.written
        inner.inherited, inner.depth = self.inherited, self.depth + 1
        inner.arguments = tuple(words[2:]) or self.arguments
        inner.used |= self.used
        yield from inner.run()
        self.exported = inner.exported

    def _keep_file(self, words: list[Word]) -> None:
        """Text that `cat`, `tee` or `echo` puts into a file."""
        name, text = words[0].text, self.here_text
        target = self.target or (words[-1].text if name == "tee" else "")
        if name in ("echo", "printf") and text is None and self.target:
            text = " ".join(word.text for word in words[1:] if word.text != "-e") + "\n"
        if text is not None and target:
            self.written[target] = text


def _texts(words: tuple[Word, ...] | None) -> tuple[tuple[str, tuple[str, ...]], ...] | None:
    return None if words is None else tuple((word.text, word.unset) for word in words)


def _open(name: str, values: Sequence[tuple[Word, ...] | None]) -> tuple[Word, ...]:
    """Return what is the same in all values of a variable, and a word for what is not."""
    given = [value or () for value in values]
    alike = zip(*given, strict=False) if given else ()
    same = list(takewhile(lambda words: len({(w.text, w.unset) for w in words}) == 1, alike))
    ends = [" ".join(word.text for word in value[len(same) :]) for value in given]
    said = f"{name} = {' or '.join(dict.fromkeys(text or 'nothing' for text in ends))}"
    source = next((value[-1].source for value in given if value), Source(f"${name}"))
    unset = said[:120] if ends else f"{name} of a command"
    return (*(words[0] for words in same), Word("", source, (unset,)))
