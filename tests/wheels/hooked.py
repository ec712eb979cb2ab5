"""Whether the functions that the adapters hook are in the versions that they say."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from packaging.version import Version

from grpo_doctor_probes.hooks.boot import ADAPTERS, adapter_of
from grpo_doctor_probes.hooks.table import Adapter, Hook
from tests.wheels.definitions import sources
from tests.wheels.fetch import VERSIONS, NoWheelError, wheel

# Beside the frameworks: the loop, the engine and the backward pass underneath.
UNDERNEATH = {
    "transformers": ("4.51.3", "4.57.3", "5.19.0", "5.23.0"),
    "accelerate": ("1.4.0", "1.10.1", "1.15.0"),
    "deepspeed": ("0.19.8",),  # the index has no wheels of it: read where it is installed
    "sglang": ("0.4.6", "0.5.9", "0.5.23"),
}
_NEWEST_VLLM = "0.33.0"


def lost_hooks(check: bool, vllm: Path | None = None) -> tuple[list[str], int, list[str]]:
    """What is wrong in which version, how many wheels were read, and which could not be had.

    Args:
        check: a wheel that could not be had is wrong too.
        vllm: a wheel of vLLM, or the folder that has its package: 340 MB, so none is fetched.
    """
    wrong: list[str] = []
    missing: list[str] = []
    read = 0
    for package in ADAPTERS:
        adapter = adapter_of(package)
        for version in _versions_of(adapter.distribution):
            try:
                files = _files(adapter.distribution, version)
            except NoWheelError as problem:
                missing.append(str(problem))
                continue
            read += 1
            wrong += mismatches(adapter, version, files)
    if vllm is not None:
        files = sources(vllm) if vllm.is_file() else _tree(vllm, "vllm")
        read += 1
        wrong += mismatches(adapter_of("vllm"), _NEWEST_VLLM, files)
    return wrong + missing * check, read, [] if check else missing


def _files(distribution: str, version: str) -> dict[str, str]:
    """The files of a version, out of its wheel, or as it is installed here."""
    try:
        return sources(wheel(distribution, version))
    except NoWheelError:
        try:
            installed = metadata.distribution(distribution)
        except metadata.PackageNotFoundError:
            installed = None
        if installed is None or installed.version != version:
            raise
        return _tree(Path(str(installed.locate_file(""))), distribution)


def _tree(folder: Path, package: str) -> dict[str, str]:
    paths = (folder / package).rglob("*.py")
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in paths}


def _versions_of(distribution: str) -> tuple[str, ...]:
    return VERSIONS.get(distribution, UNDERNEATH.get(distribution, ()))


def mismatches(adapter: Adapter, version: str, files: Mapping[str, str]) -> Iterator[str]:
    """Hooks that say that a version has their function and are wrong, with what that loses."""
    lists: dict[str, set[str]] = {}
    for hook in adapter.hooks:
        if not within(version, hook.versions):
            continue
        if hook.module not in lists:
            lists[hook.module] = functions_of(files, hook.module)
        if hook.qualname not in lists[hook.module]:
            yield (
                f"{adapter.distribution} {version}: no {hook.module}:{hook.qualname}; "
                f"lost: {hook.span}{_others(adapter, hook, version)}"
            )


def _others(adapter: Adapter, hook: Hook, version: str) -> str:
    same = (
        other.qualname
        for other in adapter.hooks
        if other is not hook and other.span == hook.span and within(version, other.versions)
    )
    names = ", ".join(same)
    return f" (still hooked: {names})" if names else ""


def within(version: str, versions: str) -> bool:
    """Whether a version is in `0.16-0.26`, which has all of 0.26, in `4.4-`, or in `3.11` alone."""
    first, dash, last = versions.partition("-")
    if not dash:
        last = first
    release = Version(version).release
    if release < Version(first).release:
        return False
    if not last:
        return True
    end = Version(last).release
    return release[: len(end)] <= end


def functions_of(files: Mapping[str, str], module: str) -> set[str]:
    """The functions that a module of a wheel defines: `function` and `Class.method`."""
    path = module.replace(".", "/")
    text = files.get(f"{path}.py", files.get(f"{path}/__init__.py"))
    if text is None:
        return set()
    return set(_defined(ast.parse(text).body, ""))


def _defined(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef):
            yield from _defined(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, (ast.If, ast.Try)):  # defined where something is installed
            branches = [*node.body, *node.orelse, *getattr(node, "finalbody", [])]
            yield from _defined(branches, prefix)
