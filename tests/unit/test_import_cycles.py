"""Test of the import graph of the product: no cycle, not even of imports inside functions or for type checkers only."""

import ast
from graphlib import CycleError, TopologicalSorter

from tests.support.places import ROOT

PACKAGES = ("policy", "sandbox", "tools", "runner", "profiles")


def imports() -> dict[str, set[str]]:
    """Return, for each module of the product, the modules of the product that it imports anywhere in its text."""
    files = {path for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                parts = {f"{node.module}.{each.name}" for each in node.names}
                found |= (parts & names.keys()) or ({node.module} & names.keys())
            elif isinstance(node, ast.Import):
                found |= {each.name for each in node.names} & names.keys()
        graph[name] = found - {name}
    return graph


def test_there_is_no_import_cycle() -> None:
    graph = imports()
    assert len(graph) > 500, "the modules are found"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"an import cycle: {' -> '.join(error.args[1])}") from None


def within(package: str, graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return, for each module and each folder directly in `package`, those beside it that it imports."""
    inside = f"{package}."
    found: dict[str, set[str]] = {}
    for name, imported in graph.items():
        if name.startswith(inside):
            own = name.removeprefix(inside).partition(".")[0]
            others = {each.removeprefix(inside).partition(".")[0] for each in imported if each.startswith(inside)}
            found.setdefault(own, set()).update(others - {own})
    return found


def test_no_two_folders_import_each_other() -> None:
    graph = imports()
    packages = sorted({name.rpartition(".")[0] for name in graph} - {""})
    assert {"runner", "runner.config", "policy"} <= set(packages)
    for package in packages:
        try:
            TopologicalSorter(within(package, graph)).prepare()
        except CycleError as error:
            raise AssertionError(f"a cycle in {package}: {' -> '.join(error.args[1])}") from None


def test_a_cycle_would_be_found() -> None:
    graph = imports() | {"policy.model.tier": {"runner.loop"}}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return
    raise AssertionError("a module at the bottom that imports one at the top closes a cycle")
