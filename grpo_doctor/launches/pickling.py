"""Reward functions that a framework sends to processes of their own, and which pickle refuses.

verl's `prime` reward manager scores in a pool of processes, TRL's AsyncGRPOTrainer in a child that
is spawned; both send the function itself. Pickle sends a function by the name under which the
other side finds it: what has none, or is made anew by each call, can't be sent.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_doctor.launches.files import tree_of
from grpo_doctor.launches.model import Source, Unsendable

_POOLS = ("reward_model.reward_manager", "reward.reward_manager.name")
_OF_VERL = ("custom_reward_function", "reward.custom_reward_function")
_SPAWNS = "AsyncGRPOTrainer"
_SENT = ("reward_funcs", "tools", "environment_factory")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Names = Mapping[str, ast.expr | Definition]


def of_verl(
    options: Mapping[str, Any], sources: Mapping[str, Source], path: Path | None
) -> tuple[Unsendable, ...]:
    """The custom reward function in the file at `path`, if a pool of processes calls it."""
    name = str(next((options[f"{k}.name"] for k in _OF_VERL if options.get(f"{k}.name")),
                    "compute_score"))  # fmt: skip
    tree = tree_of(path)
    if tree is None or not any(options.get(key) == "prime" for key in _POOLS):
        return ()
    reason = _Reader(tree).refused(ast.Name(name), ())
    if reason is None:
        return ()
    source = next(sources[f"{k}.path"] for k in _OF_VERL if f"{k}.path" in sources)
    return (Unsendable(name, reason, source),)


def verl_file(options: Mapping[str, Any]) -> str | None:
    """The file of verl's custom reward function, as the launch names it."""
    paths = (options.get(f"{key}.path") for key in _OF_VERL)
    return next((path for path in paths if isinstance(path, str) and path), None)


def of_script(path: Path, shown: str) -> tuple[Unsendable, ...]:
    """What a script hands to a trainer that spawns its rollouts."""
    tree = tree_of(path)
    return () if tree is None else tuple(_Reader(tree, spawned=True).sent(shown))


class _Reader:
    def __init__(self, tree: ast.Module, *, spawned: bool = False) -> None:
        self.tree = tree
        self.followed: set[ast.expr] = set()
        self.module = dict(_bound(tree.body))
        guarded = [node for node in tree.body if spawned and _is_main_guard(node)]
        self.guarded = dict(_bound(guarded)).keys()

    def sent(self, shown: str) -> Iterator[Unsendable]:
        """The unsendable among the arguments of each trainer that spawns."""
        for scopes, call in self._calls(self.tree.body, ()):
            for word in call.keywords:
                if word.arg not in _SENT:
                    continue
                listed = isinstance(word.value, ast.List | ast.Tuple)
                for node in word.value.elts if listed else [word.value]:  # type: ignore[attr-defined]
                    reason = self.refused(node, scopes)
                    if reason:
                        source = Source(ast.unparse(node), file=shown, line=node.lineno)
                        yield Unsendable(ast.unparse(node), reason, source)

    def _calls(
        self, body: Sequence[ast.stmt], scopes: tuple[Names, ...]
    ) -> Iterator[tuple[tuple[Names, ...], ast.Call]]:
        """Each call of such a trainer, with the names of the functions around it, nearest last."""
        for node in _outside_functions(body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self._calls(node.body, (*scopes, dict(_bound(node.body))))
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_SPAWNS):
                yield scopes, node

    def refused(self, node: ast.expr, scopes: tuple[Names, ...]) -> str | None:
        """Why pickle refuses a value; None where it takes it or nothing is known of it."""
        if isinstance(node, ast.Lambda):
            return "a lambda has no name by which another process finds it"
        if isinstance(node, ast.Call):
            return self._made(node, scopes)
        if not isinstance(node, ast.Name):
            return None
        return self._refused_name(node.id, scopes)

    def _refused_name(self, name: str, scopes: tuple[Names, ...]) -> str | None:
        local = next((names for names in reversed(scopes) if name in names), None)
        bound = (local or self.module).get(name)
        if isinstance(bound, ast.expr):
            if bound in self.followed:  # a = b, b = a
                return None
            self.followed.add(bound)
            return self.refused(bound, scopes)
        if local is not None:
            return f"{name} is defined inside a function"
        if name in self.guarded:
            return f"{name} is defined under `if __name__ == '__main__'`, which a child skips"
        return self._decorated(bound) if bound is not None else None

    def _made(self, call: ast.Call, scopes: tuple[Names, ...]) -> str | None:
        """Of what a call returns: `partial` of something, a closure, an object of a local class."""
        name = ast.unparse(call.func)
        if name.rpartition(".")[2] == "partial":
            arguments = [*call.args, *(word.value for word in call.keywords)]
            return next((r for part in arguments if (r := self.refused(part, scopes))), None)
        local = next((names for names in reversed(scopes) if name in names), None)
        maker = (local or self.module).get(name)
        if isinstance(maker, ast.ClassDef):
            return f"the class {name} is defined inside a function" if local else None
        inner = _returned_inside(maker)
        return f"{name}() returns {inner}, which is defined inside it" if inner else None

    def _decorated(self, definition: Definition) -> str | None:
        for decorator in definition.decorator_list:
            name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
            inner = _returned_inside(self.module.get(name))
            if inner:
                return f"@{name} puts {inner} in its place, which is defined inside {name}"
        return None


def _outside_functions(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """All nodes of a body, functions as one node each."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _outside_functions(list(ast.iter_child_nodes(node)))


def _bound(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr | Definition]]:
    """The names that a body binds to functions, classes and values."""
    for node in _outside_functions(body):
        if isinstance(node, Definition):
            yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _returned_inside(maker: ast.expr | Definition | None) -> str | None:
    """What a function of this file returns that it defines itself; None after `functools.wraps`,
    which gives it the name of what it replaces."""
    if not isinstance(maker, ast.FunctionDef):
        return None
    names = dict(_bound(maker.body))
    for node in _outside_functions(maker.body):
        value = node.value if isinstance(node, ast.Return) else None
        if isinstance(value, ast.Lambda):
            return "a lambda"
        called = value.func if isinstance(value, ast.Call) else value
        inner = names.get(called.id) if isinstance(called, ast.Name) else None
        if isinstance(inner, ast.Lambda):
            return "a lambda"
        if isinstance(inner, Definition) and "wraps" not in _decorators(inner):
            return inner.name
    return None


def _decorators(definition: Definition) -> str:
    return " ".join(ast.unparse(decorator) for decorator in definition.decorator_list)


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
