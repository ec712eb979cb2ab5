"""A command with other options: in its own words, or in a copy of the script that it starts.

Each edit is read again as `check` reads a launch: one that changes anything but the options that
it names is not made. The user's own files are never written.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_doctor.errors import GrpoDoctorError, UsageError
from grpo_doctor.launches import Launch

Reader = Callable[[Sequence[str]], Launch]
_REMOVED = re.compile(r"\(remove (--[\w.-]+)\)")
_OVERRIDE = re.compile(r"\+{0,2}[A-Za-z_][\w.@/-]*=")
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
# A script that asks for its own place reads other files from there, and a copy has another one.
_OWN_PLACE = re.compile(r"\$\{?0\b|BASH_SOURCE")
_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s\\"'-][^\s\\]*|-\d[^\s\\]*)"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command to start, and the text of its script where that differs from the user's.

    Attributes:
        words: as the user gave them.
        place: index of the script among them; None where the command is no script.
        text: the script's; empty for the user's own.
    """

    words: tuple[str, ...]
    place: int | None = None
    text: str = ""

    @classmethod
    def of(cls, words: Sequence[str]) -> Command:
        """Return the command as the user gave it."""
        places = [i for i, word in enumerate(words) if word.endswith(_SCRIPTS)]
        here = next((i for i in places if Path(words[i]).is_file()), None)
        return cls(tuple(words), here)

    def started(self, folder: Path) -> list[str]:
        """Return the words to start: a changed script is written into `folder`."""
        words = list(self.words)
        if self.place is not None and self.text:
            folder.mkdir(parents=True, exist_ok=True)
            copy = folder / Path(words[self.place]).name
            copy.write_text(self.text)
            copy.chmod(Path(words[self.place]).stat().st_mode & 0o777)
            words[self.place] = str(copy)
        return words

    @property
    def script(self) -> Path | None:
        """The user's script, if its text is changed."""
        return Path(self.words[self.place]) if self.place is not None and self.text else None

    @property
    def patch(self) -> str:
        """The change of the user's script as a unified diff; empty without one."""
        if (script := self.script) is None:
            return ""
        lines = script.read_text().splitlines(keepends=True), self.text.splitlines(keepends=True)
        name = str(script).lstrip("/")
        return "".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}"))


class CannotEditError(GrpoDoctorError):
    """The options can't be put into this command; the message says why."""


def with_options(command: Command, text: str, read: Reader, scratch: Path) -> Command:
    """Return the command with the options that `text` names, `--x 1` or `a.b=1`.

    Args:
        command: what they are added to; one that it has is replaced.
        text: as a fix is printed; `(remove --x)` takes an option away.
        read: how a launch is read.
        scratch: a folder for copies of scripts.

    Raises:
        CannotEditError: no place was found where this changes these options alone.
    """
    removed = _REMOVED.findall(text)
    added = list(_options(shlex.split(_REMOVED.sub("", text))))
    options = [[name] for name in removed] + added
    gone = {_name(name) for name in removed}
    wanted = {**dict.fromkeys(gone), **{_name(option[0]): _value(option) for option in added}}
    before = read(command.started(scratch)).options
    for tried in _attempts(command, options, gone, read, scratch):
        try:
            after = read(tried.started(scratch)).options
        except UsageError:
            continue
        if _is_change(before, after, wanted):
            return tried
    if command.place is not None and _OWN_PLACE.search(_text_of(command)):
        raise CannotEditError(
            f"{command.words[command.place]} reads its own place ($0), so a changed copy of it "
            'may read other files; pass its arguments on ("$@")'
        )
    raise CannotEditError(f"no place was found for {text} in the command")


def _is_change(
    before: Mapping[str, object], after: Mapping[str, object], wanted: Mapping[str, object]
) -> bool:
    """Whether the options that are wanted hold, None for none, and all others are as before."""
    was, now = ({_name(name): value for name, value in told.items()} for told in (before, after))
    differ = {name for name in {*was, *now} if was.get(name) != now.get(name)}
    return differ <= set(wanted) and all(now.get(name) == wanted[name] for name in wanted)


def _value(option: Sequence[str]) -> object:
    """What an option says, as a launch is read."""
    name, *values = option
    if not name.startswith("--"):
        return name.partition("=")[2].strip("'\"")
    return values[0] if len(values) == 1 else values or True


def _attempts(
    command: Command, options: Sequence[list[str]], gone: set[str], read: Reader, scratch: Path
) -> Iterator[Command]:
    words = list(command.words)
    for option in options:
        words = _in_words(words, option, _name(option[0]) in gone)
    yield replace(command, words=tuple(words))
    if command.place is None or _OWN_PLACE.search(_text_of(command)):
        return
    text = _text_of(command)
    sources = read(command.started(scratch)).option_sources
    lines = {_name(name): source.line for name, source in sources.items() if source.line}
    for option in options:
        text = _in_text(text, option, _name(option[0]) in gone, lines)
    yield replace(command, text=text)


def _text_of(command: Command) -> str:
    if command.text or command.place is None:
        return command.text
    return Path(command.words[command.place]).read_text()


def _name(word: str) -> str:
    return word.partition("=")[0].lstrip("-+").replace("-", "_")


def _options(words: Sequence[str]) -> Iterator[list[str]]:
    """Each option with its values: `--a 1 --b` as [--a, 1], [--b]; an override is one word."""
    option: list[str] = []
    for word in words:
        if word.startswith("--") or _OVERRIDE.match(word):
            if option:
                yield option
            option = word.split("=", 1) if word.startswith("--") else [word]
        else:
            option.append(word)
    if option:
        yield option


def _in_words(words: list[str], option: list[str], removed: bool) -> list[str]:
    """The words with the option in the place of the old one, or at their end."""
    is_flag = option[0].startswith("--")
    for index, word in enumerate(words):
        same = _name(word) == _name(option[0])
        if not same or word.startswith("--") != is_flag or not (is_flag or _OVERRIDE.match(word)):
            continue
        end = index + 1
        while is_flag and "=" not in word and end < len(words) and not words[end].startswith("--"):
            end += 1
        return [*words[:index], *([] if removed else option), *words[end:]]
    return words if removed else [*words, *option]


def _in_text(text: str, option: list[str], removed: bool, place_of: Mapping[str, int]) -> str:
    """A script with the option in the place of the old one, or before another of the command."""
    shown = "" if removed else shlex.join(option)
    lines = text.splitlines(keepends=True)
    old = place_of.get(_name(option[0]))
    if old is not None:
        lines[old - 1] = _pattern(option[0]).sub(lambda _: shown, lines[old - 1], count=1)
        return "".join(lines)
    for name, number in sorted(place_of.items(), key=lambda item: -item[1]):
        found = _pattern(name).search(lines[number - 1])
        if found:
            line = lines[number - 1]
            lines[number - 1] = f"{line[: found.start()]}{shown} {line[found.start() :]}"
            return "".join(lines)
    return text


def _pattern(option: str) -> re.Pattern[str]:
    """The option with its value, in the text of a script."""
    name = re.escape(_name(option)).replace("_", "[-_]")
    flag = rf"--{name}(?![\w-])(?:(?:=|\s+){_VALUE})?"
    return re.compile(rf"(?<![\w.-])(?:{flag}|\+{{0,2}}{name}={_VALUE})")
