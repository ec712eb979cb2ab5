"""Writes `grpo_doctor/knobs/options/`: every option of every framework, with its versions.

`python -m tests.wheels --options [--vllm DIR] [--sglang WHEEL] [--transformers WHEEL]`: these three
are large, so one version of each is read, where it is given.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from grpo_doctor.knobs.option_lists import FOLDER
from grpo_doctor_trainer.config import TrainerConfig
from tests.wheels import definitions
from tests.wheels.definitions import sources
from tests.wheels.fetch import VERSIONS, NoWheelError, wheel

Reader = Callable[[Mapping[str, str]], Iterable[str]]
_FLAG = re.compile(r"[\"'](--?[a-z][\w-]*)[\"']")


def _trl_server(files: Mapping[str, str]) -> Iterable[str]:
    text = files.get("trl/scripts/vllm_serve.py", "")
    return definitions.fields_in(text, "ScriptArguments") if "class ScriptArguments" in text else ()


def _megatron(files: Mapping[str, str]) -> Iterable[str]:
    own = {p: t for p, t in files.items() if p.startswith("swift/") and _ARGUMENTS.search(p)}
    classes = definitions._classes(own)
    return definitions.fields_of(classes, "MegatronRLHFArguments")


_ARGUMENTS = re.compile(r"^swift/.*(argument|args|trainers|utils|tuners|plugin)")


def _verl_megatron(files: Mapping[str, str]) -> Iterable[str]:
    folder = "verl/trainer/config/"
    text = files.get(folder + "_generated_ppo_megatron_trainer.yaml")
    text = text or files[folder + "ppo_megatron_trainer.yaml"]
    return [name for name, _ in definitions._leaves("", yaml.safe_load(text))]


def _openrlhf(files: Mapping[str, str]) -> Iterable[str]:
    """The critic's options are made from the same lines as the actor's."""
    names = definitions.READERS["openrlhf"](files)
    return {*names, *(f"critic.{n[6:]}" for n in names if n.startswith("actor."))}


READERS: Mapping[str, tuple[str, Reader]] = {
    "ms-swift": ("ms-swift", definitions.READERS["ms-swift"]),
    "ms-swift-megatron": ("ms-swift", _megatron),
    "ms-swift-server": ("ms-swift", definitions.READERS["ms-swift server"]),
    "trl": ("trl", definitions.READERS["trl"]),
    "trl-server": ("trl", _trl_server),
    "verl": ("verl", definitions.READERS["verl"]),
    "verl-megatron": ("verl", _verl_megatron),
    "openrlhf": ("openrlhf", _openrlhf),
}


def write(vllm: str | None, sglang: str | None, transformers: str | None) -> int:
    """Writes the lists that can be made here; the rest stay as they are."""
    for name, (package, reader) in READERS.items():
        versions_by_option: dict[str, list[str]] = {}
        read: list[str] = []
        for version in VERSIONS[package]:
            try:
                names = list(reader(sources(wheel(package, version))))
            except (NoWheelError, KeyError) as problem:
                sys.stdout.write(f"{name} {version}: {problem}\n")
                continue
            if not names:
                continue
            read.append(version)
            for option in names:
                versions_by_option.setdefault(option, []).append(version)
        _save(name, read, versions_by_option)
    names = [option.name for option in dataclasses.fields(TrainerConfig)]
    _save("bundled", ["0.1.0"], {option: ["0.1.0"] for option in names})
    if vllm:
        _save("vllm", ["0.32.0"], {option: ["0.32.0"] for option in _vllm(Path(vllm))})
    if transformers:
        _write_transformers(Path(transformers))
    if sglang:
        version = Path(sglang).name.split("-")[1]
        _save("sglang", [version], {option: [version] for option in _sglang(Path(sglang))})
    return 0


def _vllm(folder: Path) -> set[str]:
    text = (folder / "engine/arg_utils.py").read_text(encoding="utf-8")
    names = {*definitions.fields_in(text, "AsyncEngineArgs"), *_flags(text)}
    front = (folder / "entrypoints/launchers/cli_args.py").read_text(encoding="utf-8")
    return names | set(definitions.fields_in(front, "FrontendArgs")) | _flags(front)


def _sglang(archive: Path) -> set[str]:
    names: set[str] = set()
    with zipfile.ZipFile(archive) as files:
        for path in files.namelist():
            if path.startswith("sglang/srt/arg_groups/fields/") and path.endswith(".py"):
                text = files.read(path).decode("utf-8")
                names |= _flags(text)
                names |= {
                    line.target.id
                    for node in ast.walk(ast.parse(text))
                    if isinstance(node, ast.ClassDef)
                    for line in node.body
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
                }
        names |= _flags(files.read("sglang/srt/server_args.py").decode("utf-8"))
    return names


def _flags(text: str) -> set[str]:
    return {flag.strip("-").replace("-", "_") for flag in _FLAG.findall(text)}


def _save(name: str, read: list[str], versions_by_option: Mapping[str, list[str]]) -> None:
    lines = [f"# {' '.join(read)}"]
    for option, versions in sorted(versions_by_option.items()):
        lines.append(" ".join([option, *_ranges(read, versions)]))
    (FOLDER / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(f"{name}: {len(versions_by_option)} options of {len(read)} versions\n")


def _ranges(read: list[str], versions: list[str]) -> list[str]:
    """`3.2.0..3.6.0`: from the first version that has it to the first that has it no more."""
    ranges: list[str] = []
    places = [read.index(version) for version in versions]
    begin = places[0]
    for index, following in zip(places, [*places[1:], None], strict=True):
        if following != index + 1:
            first = "" if begin == 0 else read[begin]
            last = "" if index + 1 == len(read) else read[index + 1]
            ranges.append(f"{first}..{last}")
            begin = following if following is not None else 0
    return [] if ranges == [".."] else ranges


def _write_transformers(archive: Path) -> None:
    """The training arguments of a transformers 4 wheel that the newest TRL's transformers lacks."""
    with zipfile.ZipFile(archive) as files:
        folder = "transformers/"
        texts = {
            name: files.read(folder + name).decode("utf-8")
            for name in ("training_args.py", "training_args_seq2seq.py")
        }
    old = definitions.fields_of(definitions._classes(texts), "Seq2SeqTrainingArguments")
    now = {line.split()[0] for line in (FOLDER / "trl.txt").read_text().splitlines()[1:]}
    removed = sorted(name for name in {*old} - now if not name.startswith("_"))
    version = archive.name.split("-")[1]
    _save("transformers4", [version], {name: [version] for name in removed})
