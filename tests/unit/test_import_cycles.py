"""Test of the import graph of the product: no cycle, not even of imports inside functions or for type checkers only."""

import ast
from graphlib import CycleError, TopologicalSorter

from tests.support.import_graph import imports, statements


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


def test_every_statement_is_visited() -> None:
    """The graph is only as complete as the walk: imports in all places where Python permits a statement."""
    nested = """
if a:
    import m1
elif b:
    import m2
else:
    import m3
for a in b:
    import m4
else:
    import m5
while a:
    import m6
else:
    import m7
try:
    import m8
except A:
    import m9
else:
    import m10
finally:
    import m11
try:
    pass
except* A:
    import m12
with a:
    import m13
match a:
    case 1:
        import m14
def f():
    import m15
async def f():
    async with a:
        import m16
    async for a in b:
        import m17
class A:
    import m18
"""
    found = {each.names[0].name for each in statements(ast.parse(nested)) if isinstance(each, ast.Import)}
    assert found == {f"m{number}" for number in range(1, 19)}
