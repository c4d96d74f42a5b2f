"""The graph of the imports of the product: for each module, the modules of the product that it imports."""

import ast
from collections.abc import Iterator
from functools import cache

from tests.support.places import ROOT

PACKAGES = ("policy", "sandbox", "tools", "runner", "profiles")


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield every statement of `tree`, those inside of functions and classes included, in no particular order.

    An import is a statement. `ast.walk` visits ten times as many nodes, because it enters expressions.
    """
    rest: list[ast.stmt] = [*tree.body]
    while rest:
        statement = rest.pop()
        yield statement
        for name in ("body", "orelse", "finalbody"):
            rest += getattr(statement, name, ())
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            rest += part.body


@cache
def imports() -> dict[str, set[str]]:
    """Return, for each module of the product, the modules of the product that it imports anywhere in its text."""
    files = {path for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        found: set[str] = set()
        for node in statements(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                parts = {f"{node.module}.{each.name}" for each in node.names}
                found |= (parts & names.keys()) or ({node.module} & names.keys())
            elif isinstance(node, ast.Import):
                found |= {each.name for each in node.names} & names.keys()
        graph[name] = found - {name}
    return graph
