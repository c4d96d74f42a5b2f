"""The content of a wheel: the packages of a checkout as parts of one package, `ringfence`.

In a checkout `policy`, `sandbox`, `tools`, `runner` and `profiles` are imported by these names. In an environment with
other projects, such general names would collide. A wheel therefore contains `ringfence/__init__.py` (`ringfence.py` of
a checkout) and the packages below it, and each of their import statements is rewritten: `from policy.model.tier import
Mode` becomes `from ringfence.policy.model.tier import Mode`. Nothing else of a file changes, and no line moves.

A text that names a module (`import_module("policy.classify")`) would keep the old name, so such a text is an error:
derive the name from `__name__` or `__package__` instead.
"""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "ringfence"
PARTS = ("policy", "profiles", "runner", "sandbox", "tools")
SUFFIXES = {
    ".py",
    ".md",
    ".toml",
    ".json",
    ".css",
    ".html",
    ".js",
    ".svg",
    ".txt",
    ".typed",
}  # of the files that a wheel contains

# Texts that look like the name of a module and are allowed, by file and beginning of the text, with the reason.
ALLOWED = {
    ("runner/config/schema.py", "sandbox.container"): "a table of the configuration",
    ("runner/cli/main.py", "runner.cli.main"): "is removed from the end of the module's own name",
}

_NAMES = "|".join(PARTS)
_DOTTED = re.compile(rf"(?:{_NAMES})(?:\.\w+)*\.?", re.ASCII)
# Code or a command line in a text: `from runner.cli.main import main`, `python -m runner`.
_CODE = re.compile(
    rf"\bfrom (?:{_NAMES})[.\w]* import\b|\bimport (?:{_NAMES})\s*(?:;|$|\.)|-m (?:{_NAMES})\b", re.ASCII
)
_BY_NAME = {"__import__", "find_spec", "files", "import_module", "path", "resolve_name", "run_module"}


class PackageError(Exception):
    """The error for a file that cannot be a part of the wheel as it is. Its text names the file, the line and a fix."""


def copy_package(root: Path, target: Path) -> None:
    """Write the content of the package `ringfence` into the new folder `target`. Raise PackageError."""
    target.mkdir()
    modules = set(modules_of(root))
    for part in PARTS:
        for path in sorted((root / part).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and "__pycache__" not in path.parts:
                copy = target / path.relative_to(root)
                copy.parent.mkdir(parents=True, exist_ok=True)
                if path.suffix == ".py":
                    text = rewritten(path.read_text("utf-8"), path.relative_to(root).as_posix(), modules)
                    copy.write_text(text, "utf-8")
                else:
                    shutil.copyfile(path, copy)
    name = f"{PACKAGE}.py"
    (target / "__init__.py").write_text(rewritten((root / name).read_text("utf-8"), name, modules), "utf-8")
    (target / "py.typed").touch()


def modules_of(root: Path) -> Iterator[str]:
    """Yield the names of all modules and packages of a checkout."""
    for part in PARTS:
        for path in (root / part).rglob("*.py"):
            yield ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def rewritten(text: str, name: str, modules: set[str]) -> str:
    """Return the source `text` of the file `name` with the names of modules that they have in a wheel.

    `modules` are the names of all modules of the checkout. Raise PackageError for an import that cannot be rewritten,
    and for a text that names a module.
    """
    nodes = _nodes(ast.parse(text))
    if found := next(_texts(nodes, name, modules), None):
        line, said = found
        raise PackageError(f"{name}:{line}: `{said}` names a module by text: derive the name from `__name__`")
    lines = text.splitlines(keepends=True)
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            if not node.level and _is_ours(node.module or ""):
                _insert(lines, node, rf"from\s+(?={re.escape(node.module or '')}\b)", f"{PACKAGE}.", name)
        elif isinstance(node, ast.Import) and any(_is_ours(alias.name) for alias in node.names):
            alias = node.names[0]
            if len(node.names) > 1 or ("." in alias.name and alias.asname is None):
                said = ast.unparse(node)
                raise PackageError(
                    f"{name}:{node.lineno}: `{said}` binds a top-level name: write `from ... import ...`"
                )
            _insert(lines, node, rf"import\s+(?={re.escape(alias.name)}\b)", f"{PACKAGE}.", name)
            if alias.asname is None:
                _insert(lines, node, rf"import\s+{PACKAGE}\.{alias.name}", f" as {alias.name}", name)
    done = "".join(lines)
    _check(_statements(ast.parse(done)), name)
    return done


def _nodes(tree: ast.Module) -> list[ast.AST]:
    """Return the nodes of a tree in the order of `ast.walk`, which takes several times as long for a whole checkout."""
    found: list[ast.AST] = [tree]
    for node in found:  # which grows
        for field in node._fields:
            value = getattr(node, field, None)
            if type(value) is list:
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found


def _statements(tree: ast.Module) -> list[ast.AST]:
    """Return the statements of a tree at every depth, with its exception handlers and the cases of `match`."""
    found: list[ast.AST] = [tree]
    for node in found:  # which grows
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            value = getattr(node, field, None)
            if type(value) is list:  # `body` of a lambda and of a conditional expression is no list
                found += value
    return found


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in PARTS


def _insert(lines: list[str], node: ast.stmt, before: str, words: str, name: str) -> None:
    """Insert `words` into the line of `node`, after the match of `before` at its beginning. Raise PackageError."""
    line = lines[node.lineno - 1].encode()
    start, rest = line[: node.col_offset], line[node.col_offset :].decode()
    found = re.match(before, rest)
    if found is None:
        raise PackageError(f"{name}:{node.lineno}: this import is not written on one line with one blank")
    lines[node.lineno - 1] = f"{start.decode()}{rest[: found.end()]}{words}{rest[found.end() :]}"


def _check(statements: list[ast.AST], name: str) -> None:
    """Raise PackageError if an import of a top-level part is left."""
    for node in statements:
        if isinstance(node, ast.ImportFrom) and not node.level and _is_ours(node.module or ""):
            raise PackageError(f"{name}:{node.lineno}: an import of `{node.module}` is left")
        if isinstance(node, ast.Import) and any(_is_ours(alias.name) for alias in node.names):
            raise PackageError(f"{name}:{node.lineno}: an import of `{node.names[0].name}` is left")


def _texts(nodes: list[ast.AST], name: str, modules: set[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every string that names a module; strings that are statements are comments."""
    comments = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Call) and node.args and _last_name(node.func) in _BY_NAME:
            first = node.args[0]
            first = first.values[0] if isinstance(first, ast.JoinedStr) and first.values else first
            if isinstance(first, ast.Constant) and isinstance(first.value, str) and _DOTTED.fullmatch(first.value):
                yield node.lineno, first.value
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in comments:
            said = node.value
            if any(name == file and said.startswith(begin) for file, begin in ALLOWED):
                continue
            parts = said.rstrip(".").split(".") if _DOTTED.fullmatch(said) else []
            dotted = (".".join(parts[:count]) in modules for count in range(2, len(parts) + 1))
            if any(dotted) or (said.endswith(".") and said.rstrip(".") in PARTS) or _CODE.search(said):
                yield node.lineno, said


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
