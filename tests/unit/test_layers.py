"""The import arrows of ARCHITECTURE.md, checked on the source."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

from grpo_doctor import phases
from grpo_doctor_reports import palette

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "grpo_doctor": ROOT / "grpo_doctor",
    "grpo_doctor_probes": ROOT / "probes" / "grpo_doctor_probes",
    "grpo_doctor_reports": ROOT / "reports" / "grpo_doctor_reports",
    "grpo_doctor_trainer": ROOT / "trainer" / "grpo_doctor_trainer",
}
ALLOWED = {
    "grpo_doctor": {"grpo_doctor_probes", "grpo_doctor_reports"},
    "grpo_doctor_probes": set(),
    "grpo_doctor_reports": set(),
    "grpo_doctor_trainer": {"grpo_doctor_probes"},
}
# From the top down, inside a package: a module imports its own layer and those below.
LAYERS = {
    "grpo_doctor": (
        {"cli", "__main__", "notebook"},
        {"watch", "diagnose", "treat"},
        {"document", "selftest", "compare"},
        {"findings", "hang"},
        {"whatif", "memory"},
        {"analysis"},
        {"importers"},
        {"trace"},
        {"launches"},
        {"knobs"},
        {"phases", "bounded", "errors", "files", "markdown", "__init__"},
    ),
    "grpo_doctor_probes": (
        {"callback", "supervisor"},
        {"samplers", "look"},
        {"flight"},
        {"discover", "placement"},
        {"gpu", "memory", "evidence"},
        {"procs"},
        {"__init__", "hooks"},
        {"record"},
    ),
    "grpo_doctor.hang": (
        {"docs"},
        {"collection"},
        {"wants"},
        {"diagnose"},
        {"decision"},
        {"causes"},
        {"multihost"},
        {"model"},
        {"dumps"},
        {"catalogue", "verdict", "wording", "__init__"},
    ),
    "grpo_doctor.hang.model": (
        {"rollout_engine"},
        {"waiting"},
        {"view"},
        {"process"},
        {"hosts"},
        {"matching"},
        {"gpus"},
        {"nodes", "__init__"},
    ),
    "grpo_doctor.hang.decision": (
        {"render"},
        {"state"},
        {"__init__"},
    ),
}
IN_THE_JOB = {"record", "hooks", "__init__"}
BESIDE_THE_JOB = {"pynvml"}
# For scripts that have a Trainer: nothing else may import it.
FOR_TRAINERS = PACKAGES["grpo_doctor_probes"] / "callback.py"


def modules(package: str) -> Iterator[Path]:
    """Every module of a package."""
    yield from sorted(PACKAGES[package].rglob("*.py"))


@functools.cache
def import_nodes(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """The imports of a module, function bodies and TYPE_CHECKING included."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


def imports(path: Path) -> Iterator[str]:
    """Full dotted names that a module imports."""
    for node in import_nodes(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        else:
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


@pytest.mark.parametrize("package", PACKAGES)
def test_folders_import_only_along_the_arrows(package: str) -> None:
    for path in modules(package):
        for name in imports(path):
            top = name.partition(".")[0]
            if top in PACKAGES and top != package:
                assert top in ALLOWED[package], f"{path.relative_to(ROOT)} imports {name}"


def module_graph() -> dict[str, set[str]]:
    """Each module of ours by its dotted name, and the modules that it imports itself."""
    files = {
        ".".join((package, *path.relative_to(root).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for package, root in PACKAGES.items()
        for path in root.rglob("*.py")
    }
    return {
        name: {target for node in import_nodes(path) for target in _targets(node, files)} - {name}
        for name, path in files.items()
    }


def _targets(node: ast.Import | ast.ImportFrom, files: Container[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in files)
    elif node.module:
        for alias in node.names:
            # `from package import module` reads nothing of the package itself.
            full = f"{node.module}.{alias.name}"
            target = full if full in files else node.module
            if target in files:
                yield target


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The groups of modules that import each other, directly or through others."""
    remaining = set(graph)
    while leaves := {name for name in remaining if not graph[name] & remaining}:
        remaining -= leaves
    reached = {name: _reached(graph, name) & remaining for name in remaining}
    groups = {
        frozenset(target for target in reached[name] if name in reached[target])
        for name in remaining
    }
    return [set(group) for group in groups if group]


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    visited: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in visited:
            visited.add(name)
            waiting += graph[name]
    return visited


def test_no_circle_of_modules() -> None:
    # Types count: what a module needs to be checked, a reader needs to understand it.
    groups = circles(module_graph())
    assert not groups, f"modules that import each other: {groups}"


def test_a_circle_is_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert circles(graph) == [{"a", "b", "c"}]


def layer(name: str, inside: str) -> int | None:
    """The layer of a module by its dotted name; None where it lies outside of this package."""
    if name != inside and not name.startswith(f"{inside}."):
        return None
    inner = name.removeprefix(inside).lstrip(".").partition(".")[0] or "__init__"
    return next((i for i, names in enumerate(LAYERS[inside]) if inner in names), None)


@pytest.mark.parametrize("inside", LAYERS)
def test_layers_go_one_way(inside: str) -> None:
    package, *below = inside.split(".")
    root = PACKAGES[package].joinpath(*below)
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        own = layer(f"{inside}.{relative.parts[0].removesuffix('.py')}", inside)
        assert own is not None, f"{relative}: put it into a layer of this test"
        for name in imports(path):
            target = layer(name, inside)
            # The package itself, and what is a name out of its __init__.py, is no module above.
            if target is not None and name != inside:
                assert target >= own, f"{relative} imports {name}, which is above it"


def test_what_runs_inside_the_job_is_standard_library_only() -> None:
    root = PACKAGES["grpo_doctor_probes"]
    for path in modules("grpo_doctor_probes"):
        if path == FOR_TRAINERS:
            continue
        folder = path.relative_to(root).parts[0].removesuffix(".py")
        others = set() if folder in IN_THE_JOB else BESIDE_THE_JOB
        for name in imports(path):
            top, _, below = name.partition(".")
            if top != "grpo_doctor_probes":
                assert top in sys.stdlib_module_names | others, f"{path} imports {name}"
            elif folder in IN_THE_JOB:
                target = below.partition(".")[0] or "__init__"
                ours = not (root / target).is_dir() or target in IN_THE_JOB
                assert ours, f"{path} runs inside the job and imports {name}"


@pytest.mark.parametrize(("folder", "other"), [("samplers", "look"), ("look", "samplers")])
def test_samples_and_inspections_share_no_module_of_one_of_them(folder: str, other: str) -> None:
    root = PACKAGES["grpo_doctor_probes"] / folder
    needed = {name for path in root.glob("*.py") for name in imports(path)}
    assert not {name for name in needed if name.startswith(f"grpo_doctor_probes.{other}")}


def test_the_tool_never_imports_torch() -> None:
    for package in ("grpo_doctor", "grpo_doctor_probes", "grpo_doctor_reports"):
        for path in modules(package):
            tops = {name.partition(".")[0] for name in imports(path)}
            heavy = tops & {"torch", "transformers", "deepspeed", "vllm", "accelerate"}
            allowed = {"transformers"} if path == FOR_TRAINERS else set()
            assert heavy <= allowed, f"{path} imports {heavy}"


def test_nothing_imports_the_callback_for_trainers() -> None:
    users = [name for name, used in module_graph().items() if "grpo_doctor_probes.callback" in used]
    assert not users


def test_the_reports_know_the_same_phases() -> None:
    # Reports import nothing of ours, so the vocabulary stands twice; this keeps it one.
    assert palette.PHASE_ORDER == phases.PHASES
    assert palette.UNATTRIBUTED == phases.UNATTRIBUTED


# What judges may use of the reports: types of documents, and words for numbers.
NO_PAINTERS = ("schema", "severity", "formatting")


def test_nothing_but_commands_and_notebooks_imports_a_painter() -> None:
    for path in modules("grpo_doctor"):
        if path.relative_to(PACKAGES["grpo_doctor"]).parts[0] in {"cli", "notebook.py"}:
            continue
        for name in imports(path):
            package, _, module = name.partition(".")
            if package == "grpo_doctor_reports" and module:
                assert module.startswith(NO_PAINTERS), f"{path.relative_to(ROOT)} imports {name}"
