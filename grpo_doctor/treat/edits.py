"""A command with other options: in its own words, or in a copy of the script that it starts.

Each edit is read again as `check` reads a launch: one that changes anything but the options that
it names is not made. The user's own files are never written.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from grpo_doctor.errors import GrpoDoctorError, UsageError
from grpo_doctor.launches import Launch

Reader = Callable[[Sequence[str]], Launch]
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_REMOVED = re.compile(r"\(remove (--[\w.-]+)\)")
_OVERRIDE = re.compile(r"\+{0,2}[A-Za-z_][\w.@/-]*=")
# A script that asks for its own place reads other files from there, and a copy has another one.
_OWN_PLACE = re.compile(r"\$\{?0\b|BASH_SOURCE")
_VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s\\"'-][^\s\\]*|-\d[^\s\\]*)"""


class CannotEditError(GrpoDoctorError):
    """The options can't be put into this command; the message says why."""


class Command(NamedTuple):
    """A command as the user gave it: `words`, of which one is the `script` that is here, if any.
    `text` is the script's where it differs from the user's."""

    words: tuple[str, ...]
    script: str = ""
    text: str = ""

    @classmethod
    def of(cls, words: Sequence[str]) -> Command:
        """Return the command as the user gave it."""
        scripts = (word for word in words if word.endswith(SCRIPTS) and Path(word).is_file())
        return cls(tuple(words), next(scripts, ""))

    def started(self, folder: Path) -> list[str]:
        """Return the words to start: a changed script is written into `folder`."""
        if not self.text:
            return list(self.words)
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / Path(self.script).name
        copy.write_text(self.text)
        copy.chmod(Path(self.script).stat().st_mode & 0o777)
        return [str(copy) if word == self.script else word for word in self.words]

    @property
    def lines(self) -> list[str]:
        """The lines of the script, with their ends."""
        text = self.text or (Path(self.script).read_text() if self.script else "")
        return text.splitlines(keepends=True)

    @property
    def patch(self) -> str:
        """The change of the user's script as a unified diff; empty without one."""
        before, name = Command(self.words, self.script).lines, self.script.lstrip("/")
        return "".join(difflib.unified_diff(before, self.lines, f"a/{name}", f"b/{name}"))


class _Option(NamedTuple):
    """`--x` with its values, or an override in one word; without any where it is to be removed."""

    name: str
    words: tuple[str, ...]

    @property
    def value(self) -> object:
        """What it says, as a launch is read."""
        if not self.words:
            return None
        if not self.words[0].startswith("--"):
            return self.words[0].partition("=")[2].strip("'\"")
        values = list(self.words[1:])
        return values[0] if len(values) == 1 else values or True


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
    options = [_Option(_name(name), ()) for name in _REMOVED.findall(text)]
    options += _options(shlex.split(_REMOVED.sub("", text)))
    wanted = {option.name: option.value for option in options}
    before = read(command.started(scratch))
    own_place = _OWN_PLACE.search("".join(command.lines))
    attempts = [_in_words(command, options)]
    if command.script and not own_place:
        attempts.append(_in_script(command, options, before))
    for tried in attempts:
        try:
            after = read(tried.started(scratch))
        except UsageError:
            continue
        if _is_change(before.options, after.options, wanted):
            return tried
    if own_place:
        raise CannotEditError(
            f"{command.script} reads its own place ($0), so a changed copy of it may read other "
            'files; pass its arguments on ("$@")'
        )
    raise CannotEditError(f"no place was found for {text} in the command")


def _is_change(
    before: Mapping[str, object], after: Mapping[str, object], wanted: Mapping[str, object]
) -> bool:
    """Whether the options that are wanted hold, None for none, and all others are as before."""
    was, now = ({_name(name): value for name, value in told.items()} for told in (before, after))
    differ = {name for name in {*was, *now} if was.get(name) != now.get(name)}
    return differ <= set(wanted) and all(now.get(name) == wanted[name] for name in wanted)


def _name(word: str) -> str:
    return word.partition("=")[0].lstrip("-+").replace("-", "_")


def _options(words: Sequence[str]) -> Iterator[_Option]:
    """Each option with its values: `--a 1 --b` as [--a, 1], [--b]; an override is one word."""
    starts = [i for i, w in enumerate(words) if w.startswith("--") or _OVERRIDE.match(w)]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=False):
        first = words[start].split("=", 1) if words[start].startswith("--") else [words[start]]
        yield _Option(_name(first[0]), (*first, *words[start + 1 : end]))


def _in_words(command: Command, options: Sequence[_Option]) -> Command:
    """The command with each option in the place of the old one, or at the end."""
    words = list(command.words)
    for option in options:
        index = next((i for i, word in enumerate(words) if _is(word, option.name)), len(words))
        end = min(index + 1, len(words))
        if index < end and words[index].startswith("--") and "=" not in words[index]:
            while end < len(words) and not words[end].startswith("--"):
                end += 1
        words[index:end] = option.words
    return command._replace(words=tuple(words))


def _is(word: str, name: str) -> bool:
    return _name(word) == name and (word.startswith("--") or bool(_OVERRIDE.match(word)))


def _in_script(command: Command, options: Sequence[_Option], launch: Launch) -> Command:
    """The command's script with each option in the place of the old one, or before another."""
    lines, own = command.lines, Path(command.script).name
    places = {
        _name(name): source.line - 1
        for name, source in launch.option_sources.items()
        if source.line and source.file and Path(source.file).name == own
    }
    for option in options:
        shown = shlex.join(option.words)
        if (old := places.get(option.name)) is not None:
            shown = shown.replace("\\", r"\\")
            lines[old] = _pattern(option.name).sub(shown, lines[old], count=1)
            continue
        for name, at in sorted(places.items(), key=lambda item: -item[1]):
            if found := _pattern(name).search(lines[at]):
                start = found.start()
                lines[at] = f"{lines[at][:start]}{shown} {lines[at][start:]}"
                break
    return command._replace(text="".join(lines))


def _pattern(name: str) -> re.Pattern[str]:
    """An option with its value, in the text of a script."""
    name = re.escape(name).replace("_", "[-_]")
    flag = rf"--{name}(?![\w-])(?:(?:=|\s+){_VALUE})?"
    return re.compile(rf"(?<![\w.-])(?:{flag}|\+{{0,2}}{name}={_VALUE})")
