"""Reward functions that a framework sends to processes of their own, and which pickle refuses.

verl's `prime` reward manager scores in a pool of processes, TRL's AsyncGRPOTrainer in a child that
is spawned; both send the function itself. Pickle sends a function by the name under which the
other side finds it: what has none, or is made by each call, can't be sent.
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
    """Return the custom reward function in the file at `path`, if a pool of processes calls it."""
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
    """Return the file of verl's custom reward function, as the launch names it."""
    paths = (options.get(f"{key}.path") for key in _OF_VERL)
    return next((path for path in paths if isinstance(path, str) and path), None)


def of_script(path: Path, shown: str) -> tuple[Unsendable, ...]:
    """Return what a script hands to a trainer that spawns its rollouts."""
    tree = tree_of(path)
    return () if tree is None else tuple(_Reader(tree, spawned=True).sent(shown, tree.body))


class _Reader:
    def __init__(self, tree: ast.Module, *, spawned: bool = False) -> None:
        self.followed: set[ast.expr] = set()
        self.module = _bound(tree.body)
        branches = [node for node in tree.body if isinstance(node, ast.If)]
        guarded = [node for node in branches if "__name__" in ast.unparse(node.test)]
        self.guarded = _bound(guarded).keys() if spawned else {}

    def sent(
        self, shown: str, body: Sequence[ast.stmt], scopes: tuple[Names, ...] = ()
    ) -> Iterator[Unsendable]:
        """The unsendable among the arguments of each trainer that spawns; `scopes` are the names of
        the functions around it, nearest last."""
        for node in _outside_functions(body):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self.sent(shown, node.body, (*scopes, _bound(node.body)))
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_SPAWNS):
                for word in node.keywords:
                    values = word.value
                    listed = isinstance(values, ast.List | ast.Tuple)
                    for value in values.elts if listed else [values]:  # type: ignore[attr-defined]
                        reason = self.refused(value, scopes) if word.arg in _SENT else None
                        if reason:
                            source = Source(ast.unparse(value), file=shown, line=value.lineno)
                            yield Unsendable(source.text, reason, source)

    def refused(self, node: ast.expr, scopes: tuple[Names, ...]) -> str | None:
        """Return why pickle refuses a value; None where it takes it or nothing is known of it."""
        if isinstance(node, ast.Lambda):
            return "a lambda has no name by which another process finds it"
        if isinstance(node, ast.Call):
            return self._made(node, scopes)
        return self._refused_name(node.id, scopes) if isinstance(node, ast.Name) else None

    def _refused_name(self, name: str, scopes: tuple[Names, ...]) -> str | None:
        bound, is_local = self._look_up(name, scopes)
        if isinstance(bound, ast.expr):
            is_new = bound not in self.followed  # a = b, b = a
            self.followed.add(bound)
            return self.refused(bound, scopes) if is_new else None
        if is_local:
            return f"{name} is defined inside a function"
        if name in self.guarded:
            return f"{name} is defined under `if __name__ == '__main__'`, which a child skips"
        for decorator in bound.decorator_list if bound is not None else ():
            name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
            inner = _returned_inside(self.module.get(name))
            if inner:
                return f"@{name} puts {inner} in its place, which is defined inside {name}"
        return None

    def _look_up(
        self, name: str, scopes: tuple[Names, ...]
    ) -> tuple[ast.expr | Definition | None, bool]:
        """Return what a name stands for, and whether that is inside a function."""
        local = next((names for names in reversed(scopes) if name in names), None)
        return (self.module if local is None else local).get(name), local is not None

    def _made(self, call: ast.Call, scopes: tuple[Names, ...]) -> str | None:
        """Of what a call returns: `partial` of something, a closure, an object of a local class."""
        name = ast.unparse(call.func)
        if name.rpartition(".")[2] == "partial":
            arguments = [*call.args, *(word.value for word in call.keywords)]
            return next((r for part in arguments if (r := self.refused(part, scopes))), None)
        maker, is_local = self._look_up(name, scopes)
        if isinstance(maker, ast.ClassDef):
            return f"the class {name} is defined inside a function" if is_local else None
        inner = _returned_inside(maker)
        return f"{name}() returns {inner}, which is defined inside it" if inner else None


def _outside_functions(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield all nodes of a body, functions as one node each."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _outside_functions(list(ast.iter_child_nodes(node)))


def _bound(body: Sequence[ast.stmt]) -> dict[str, ast.expr | Definition]:
    """Return the names that a body binds to functions, classes and values."""
    names: dict[str, ast.expr | Definition] = {}
    for node in _outside_functions(body):
        if isinstance(node, Definition):
            names[node.name] = node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = node.value
    return names


def _returned_inside(maker: ast.expr | Definition | None) -> str | None:
    """What a function of this file returns that it defines itself; None after `functools.wraps`,
    which gives it the name of what it replaces."""
    if not isinstance(maker, ast.FunctionDef):
        return None
    names = _bound(maker.body)
    for node in _outside_functions(maker.body):
        value = node.value if isinstance(node, ast.Return) else None
        if isinstance(value, ast.Lambda):
            return "a lambda"
        called = value.func if isinstance(value, ast.Call) else value
        inner = names.get(called.id) if isinstance(called, ast.Name) else None
        if isinstance(inner, ast.Lambda):
            return "a lambda"
        if isinstance(inner, Definition) and not any(
            "wraps" in ast.unparse(decorator) for decorator in inner.decorator_list
        ):
            return inner.name
    return None
