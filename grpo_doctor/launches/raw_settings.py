"""Everything that a launch says, under the framework's own names: flags, files and environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from grpo_doctor import knobs
from grpo_doctor.bounded import OPTIONS, TooCostlyError
from grpo_doctor.knobs.model import Version, version_of
from grpo_doctor.launches.files import (
    Contents,
    UnreadableFileError,
    json_object,
    located,
    read_mapping,
    read_python,
    read_text,
)
from grpo_doctor.launches.flags import Option, Options, overrides, parse
from grpo_doctor.launches.launcher import Started
from grpo_doctor.launches.model import Problem, Source
from grpo_doctor.launches.programs import Program
from grpo_doctor.launches.tables import TABLES
from grpo_doctor.launches.words import Word

_FILES = (".yaml", ".yml", ".json")
_CONFIG_OF_VERL = "verl/trainer/config"
_CONFIG_OF_MAIN = re.compile(r"@hydra\.main\([^)]*config_name=[\"'](\w+)[\"']")
CHECKOUTS = ("", "verl/")
"""Where a copy of verl is: the folder itself, or a checkout within it."""
_TABLE = TABLES["settings"]
_BLOCKS = ("ENV", "env")
# What memory and divisibility depend on: unknown where a script computes it.
_DECISIVE = tuple(_TABLE["decisive"])
FOLDER_OF_TRL = "trl/accelerate_configs/"
# What of its files decides memory and processes (TRL 1.16).
_SHIPPED_WITH_TRL: Mapping[str, Mapping[str, Any]] = _TABLE["shipped with trl"]


@dataclass(slots=True)
class RawSettings:
    """What one command says.

    `names` are those on the command line, which its parser checks; `values` adds those of its
    files. `accelerate` is accelerate's own configuration.
    """

    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    names: dict[str, Option] = field(default_factory=dict)
    environment: dict[str, Word] = field(default_factory=dict)
    accelerate: Contents | None = None
    deepspeed: Contents | None = None
    copied: frozenset[str] = frozenset()
    """All keys that the copy of verl in the folder has."""
    own_config: bool = False
    """A configuration of the user's own decides which options there are."""
    open: tuple[str, ...] = ()
    """Variables without a value that may hold any option."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Files that the script writes earlier, by name."""
    problems: list[Problem] = field(default_factory=list)

    def take(self, name: str, value: Any, source: Source) -> None:
        """Take a value in place of any earlier one."""
        self.values[name] = value
        self.sources[name] = source

    def file(self, path: str, cwd: Path, source: Source) -> Contents | None:
        """Return a file that holds settings; a problem where it can't be read."""
        try:
            text = self.written.get(path)
            return read_mapping(located(path, cwd, source), path, text)
        except UnreadableFileError as problem:
            fix = "run check where the file is, or give its settings as flags"
            self.problems.append(Problem("unreadable", str(problem), fix, source))
            return None


def collect(
    started: Started, program: Program, cwd: Path, written: Mapping[str, str], copy: str | None
) -> RawSettings:
    """Read the command's options and the files that they name, nearest last; `copy` is the version
    of the verl in the folder."""
    raw = RawSettings(environment=dict(started.environment), written=written)
    hydra = program.framework == "verl"
    options = overrides(program.words) if hydra else parse(program.words, program.table)
    if (count := len(options.options) + len(options.twice)) > OPTIONS.items:
        raise TooCostlyError(
            f"this command has {count:,} options, and no more than {OPTIONS.items:,} are read. "
            "Give the training command itself."
        )
    _from_script(raw, program, options, cwd)
    if hydra:
        _from_hydra(raw, options, cwd)
        version = version_of(copy)
        if version is not None and not raw.own_config and started.at is not None:
            _from_copy(raw, program, version, started.at.source, cwd)
    else:
        _from_files(raw, program, options, cwd)
    for option in options.options.values():
        if option.sign == "--":
            continue
        raw.names[option.name] = option
        if option.sign == "~":
            raw.values.pop(option.name, None)
        else:
            raw.problems += _overridden(raw, option, program)
            raw.take(option.name, option.value, option.source)
    raw.open = tuple(dict.fromkeys(name for word in options.open for name in word.unset))
    raw.problems += _contradictions(options)
    raw.problems += _unset(options)
    _from_launcher(raw, started, program, cwd)
    _from_deepspeed(raw, cwd)
    return raw


def _from_script(raw: RawSettings, program: Program, options: Options, cwd: Path) -> None:
    if program.script is None:
        return
    path = program.script.text
    raw.own_config = True
    try:
        given = {name: option.value for name, option in options.options.items()}
        contents = read_python(located(path, cwd, program.script.source), path, given)
    except UnreadableFileError as problem:
        fix = "run check where the script is: its GRPOConfig(...) holds settings"
        raw.problems.append(Problem("unreadable", str(problem), fix, program.script.source))
        return
    for name, value in contents.values.items():
        raw.take(name, value, contents.source(name))
    decisive = {row.key for row in knobs.TABLES["trl"] if row.knob.startswith(_DECISIVE)}
    decisive |= {"**", "load_in_4bit", "load_in_8bit"}
    unknown = [name for name in contents.computed if name in decisive]
    if unknown:
        what = "its configuration" if "**" in unknown else ", ".join(unknown)
        text = f"{path} computes {what}, and check does not run it"
        fix = "put the values into the script as literals to check them"
        raw.problems.append(Problem("unreadable", text, fix, program.script.source))


def _from_files(raw: RawSettings, program: Program, options: Options, cwd: Path) -> None:
    """ms-swift takes a file as first argument, TRL and vLLM as `--config`."""
    word: Word | None = None
    if program.framework == "ms-swift" and options.positional:
        first = options.positional[0]
        word = first if first.text.endswith(_FILES) else None
    elif "config" in options.options and options.options["config"].values:
        word = options.options["config"].values[0]
    elif program.framework == "vllm" and options.positional:
        raw.take("model", options.positional[0].text, options.positional[0].source)
    contents = raw.file(word.text, cwd, word.source) if word is not None else None
    if contents is None:
        return
    for name, value in contents.values.items():
        source = contents.source(name)
        if name in _BLOCKS and isinstance(value, dict):
            for key, text in value.items():
                raw.environment.setdefault(str(key), Word(str(text), source))
        else:
            raw.take(name.replace("-", "_"), value, source)


def _from_hydra(raw: RawSettings, options: Options, cwd: Path) -> None:
    own = {
        name: option.values[0].text
        for name, option in options.options.items()
        if option.sign == "--" and option.values
    }
    folder = own.get("--config-path", own.get("-cp", own.get("--config-dir")))
    name = own.get("--config-name", own.get("-cn"))
    named = (options.options.get(flag) for flag in ("--config-name", "-cn"))
    raw.own_config = folder is not None or any(option.unset for option in named if option)
    raw.own_config |= "hydra.searchpath" in options.options  # groups of another package
    if folder is None:
        return
    file = f"{(name or 'ppo_trainer').removesuffix('.yaml')}.yaml"
    path = Path(folder.removeprefix("file://")) / file
    if (cwd / path).is_file():
        contents = raw.file(str(path), cwd, Source(str(path)))
        for key, value in _leaves("", contents.values if contents else {}):
            if contents and "${" not in str(value):
                raw.take(key, value, contents.source(key))


def _from_copy(
    raw: RawSettings, program: Program, version: Version, script: Source, cwd: Path
) -> None:
    """Take the defaults of a fork where they differ from verl's own of this version."""
    name = "ppo_megatron_trainer" if program.listed == "verl-megatron" else "ppo_trainer"
    mains = (located(f"{at}verl/trainer/main_ppo.py", cwd, script) for at in CHECKOUTS)
    main = next((path for path in mains if path.is_file()), None)
    try:
        if main is not None and name == "ppo_trainer":  # a fork's may take another configuration
            named = _CONFIG_OF_MAIN.search(read_text(main))
            name = named[1] if named else name
        both = (f"_generated_{name}", name)
        files = (f"{at}{_CONFIG_OF_VERL}/{file}.yaml" for at in CHECKOUTS for file in both)
        shown = next((file for file in files if located(file, cwd, script).is_file()), None)
        if shown is None:
            return
        contents = read_mapping(located(shown, cwd, script), shown)
    except UnreadableFileError:
        return
    leaves = dict(_leaves("", contents.values))
    raw.copied = frozenset(leaves)
    ours: dict[str, Any] = {"algorithm.adv_estimator": "gae"}
    for row in knobs.TABLES[program.table]:
        if row.covers(version) and not (row.values or row.inside or row.item or row.gate):
            ours[row.key] = row.default_in(version)
    for key, default in ours.items():
        value = leaves.get(key)
        if not isinstance(value, bool | int | float | str) or value in (default, "???"):
            continue  # of Hydra's marks, `???` is a value that has to be given
        is_number = isinstance(default, float) and isinstance(value, str)  # YAML takes 1e-6 as text
        if not is_number and "${" not in str(value):
            raw.take(key, value, contents.source(key))


def _leaves(path: str, node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict) and value:
            yield from _leaves(name, value)
        else:
            yield name, value


def _contradictions(options: Options) -> Iterator[Problem]:
    for before, last in options.twice:
        yield Problem(
            "contradiction",
            f"{before.source.text} and later {last.source.text}: the last one counts",
            f"remove {before.source.text}",
            last.source,
        )


def _overridden(raw: RawSettings, option: Option, program: Program) -> Iterator[Problem]:
    """Yield what a file says otherwise; a script of the user's may use neither or both."""
    before = raw.sources.get(option.name)
    if before is None or program.script is not None or option.unset or option.name in raw.copied:
        return
    if str(raw.values[option.name]).lower() != str(option.value).lower():
        yield Problem(
            "contradiction",
            f"{option.source.text}, but {before.text} in {before}: "
            f"in {program.framework} the command line counts",
            f"remove {option.source.text}, or change {before}",
            option.source,
        )


def told_twice(started: Started, environment: Mapping[str, Word]) -> Iterator[Problem]:
    """Yield GPUs, or processes, for which the launcher's option and the environment differ."""
    for name, options in _TABLE["said twice"].items():
        word = environment.get(name)
        option = next((started.options[key] for key in options if key in started.options), None)
        if word is None or option is None or word.unset or option.unset:
            continue
        value = option.text.rpartition(":")[2]
        if value not in ("all", word.text):
            text = f"{name}={word.text}, but {started.launcher} has {option.text}, which counts"
            yield Problem("contradiction", text, f"remove {name}", word.source)


def _unset(options: Options) -> Iterator[Problem]:
    for option in options.options.values():
        if option.unset:
            first = option.unset[0].partition(" ")[0]
            yield Problem(
                "unset-variable",
                f"{unset_words(option.unset)}, so {option.name} is not known",
                f"set it: {first}=... grpo-doctor check ..."
                if first.isidentifier()
                else f"give the value of {option.name} in its place",
                option.source,
            )


def unset_words(names: Sequence[str]) -> str:
    """`$A is not set here`, or which values it may have."""
    plain = [f"${name}" for name in names if name.isidentifier() or name.isdigit()]
    verb = "is" if len(plain) == 1 else "are"
    parts = [f"{', '.join(plain)} {verb} not set here"] if plain else []
    for name in (name for name in names if f"${name}" not in plain):
        variable, equals, values = name.partition(" = ")
        is_choice = equals and variable.isidentifier()
        parts.append(
            f"${variable} is {values}, which is known only when it runs"
            if is_choice
            else f"{name} is known only where it runs"
        )
    return " and ".join(parts)


def _from_launcher(raw: RawSettings, started: Started, program: Program, cwd: Path) -> None:
    """accelerate's configuration; TRL's command takes its options among its own."""
    options = dict(started.options) if started.launcher == "accelerate" else {}
    if started.name == "trl":
        for name in (name for name in raw.values if name in raw.sources):
            key = "config_file" if name == "accelerate_config" else name
            options[key] = Word(str(raw.values[name]), raw.sources[name])
    raw.accelerate = _accelerate_file(raw, options.get("config_file"), program, cwd)
    if options:
        raw.accelerate = _with_options(raw.accelerate, options)


def _accelerate_file(
    raw: RawSettings, word: Word | None, program: Program, cwd: Path
) -> Contents | None:
    if word is None:
        return None
    if program.framework == "trl" and word.text in _SHIPPED_WITH_TRL:
        values = {"num_processes": 8, **_SHIPPED_WITH_TRL[word.text]}
        return Contents(f"{FOLDER_OF_TRL}{word.text}.yaml", values)
    return raw.file(word.text, cwd, word.source) if word.text.endswith(_FILES) else None


def _with_options(config: Contents | None, options: Mapping[str, Word]) -> Contents | None:
    """Return accelerate's configuration with its options, which count more than its file."""
    config = config or Contents("", {})
    values, said = dict(config.values), dict(config.said)
    for section, names in _TABLE["accelerate"].items():
        given = {name: _literal(options[name].text) for name in names if name in options}
        of_file = values.get(section)
        both = {**(of_file if isinstance(of_file, Mapping) else {}), **given}
        values |= {section: both} if section else given
        prefix = f"{section}." if section else ""
        for name, value in given.items():
            said[f"{prefix}{name}"] = replace(options[name].source, text=f"--{name} {value}")
    for name, kind in _TABLE["accelerate kinds"].items():
        if name in options:
            values["distributed_type"], said["distributed_type"] = kind, options[name].source
    if "use_deepspeed" in options and "deepspeed_config_file" not in values["deepspeed_config"]:
        values["deepspeed_config"].setdefault("zero_stage", 2)  # accelerate 1.15
        said.setdefault("deepspeed_config.zero_stage", options["use_deepspeed"].source)
    return replace(config, values=values, said=said)


def _literal(text: str) -> Any:
    return int(text) if text.isdecimal() else {"true": True, "false": False}.get(text.lower(), text)


def _from_deepspeed(raw: RawSettings, cwd: Path) -> None:
    """DeepSpeed's JSON file, wherever it is named; ms-swift takes the JSON itself as well."""
    value, source = raw.values.get("deepspeed"), raw.sources.get("deepspeed")
    accelerate = raw.accelerate.values.get("deepspeed_config") if raw.accelerate else None
    if value is None and isinstance(accelerate, Mapping) and raw.accelerate is not None:
        value = accelerate.get("deepspeed_config_file")
        source = raw.accelerate.source("deepspeed_config.deepspeed_config_file")
    if not isinstance(value, str) or source is None:
        return
    if value.lstrip().startswith("{"):
        raw.values["deepspeed"] = json_object(value) or value
    elif value.endswith(_FILES):
        raw.deepspeed = raw.file(value, cwd, source)


def first_text(value: Any) -> str:
    """Return the text of an option that takes one value."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return str(value[0]) if value else ""
    return str(value)
