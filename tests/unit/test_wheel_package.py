"""Tests of the rewriting of imports for a wheel (docs/wheel_package.py)."""

import ast
import importlib.util
from types import ModuleType

import pytest

from tests.support.places import ROOT


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wheel_package", ROOT / "docs" / "wheel_package.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WHEEL = _loaded()
MODULES = {
    "policy",
    "policy.classify",
    "policy.handlers",
    "runner",
    "runner.cli",
    "runner.cli.main",
    "sandbox",
    "tools",
}


@pytest.mark.parametrize(
    ("source", "expected", "why"),
    [
        ("from policy.classify import x\n", "from ringfence.policy.classify import x\n", "from a module"),
        ("from policy import classify\n", "from ringfence.policy import classify\n", "from a package"),
        ("if 1:\n    from  tools  import x\n", "if 1:\n    from  ringfence.tools  import x\n", "blanks are kept"),
        ("from policy.classify import (\n    x,\n    y,\n)\n", "from ringfence.policy.classify import (\n    x,\n    y,\n)\n", "on several lines"),
        ("import policy\n", "import ringfence.policy as policy\n", "a package keeps its name in the module"),
        ("import runner.cli as cli  # why\n", "import ringfence.runner.cli as cli  # why\n", "another name"),
        ("'é'; from policy import x; import os\n", "'é'; from ringfence.policy import x; import os\n", "after other characters"),
        ("import policies\nfrom toolset import x\nfrom . import policy\n", None, "other names"),
        ('"""`policy.classify`: from policy.classify import x"""\n# import policy\n', None, "a docstring and a comment"),
        ("x = 'policy'\ny = 'sandbox.minimum'\nz = 'policy/tables/x.toml'\n", None, "a word, a setting and a path"),
    ],
)  # fmt: skip
def test_imports_are_rewritten(source: str, expected: str | None, why: str) -> None:
    assert WHEEL.rewritten(source, "x.py", MODULES) == (source if expected is None else expected)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import runner.cli\n", "binds `runner`"),
        ("import os, policy\n", "two modules"),
        ("import_module('policy.classify')\n", "a module"),
        ("import_module('policy')\n", "a package"),
        ("import_module(f'policy.handlers.{name}')\n", "a beginning"),
        ("find_spec('sandbox')\n", "a search"),
        ("resources.files('runner.cli')\n", "data"),
        ("NAMES = ('policy.classify',)\n", "a name in a table"),
        ("x: 'runner.cli.main.Start'\n", "an annotation"),
        ("START = 'import sys; from runner.cli.main import main; main()'\n", "code for another process"),
        ("argv = ('python', '-c', 'import policy')\n", "code that ends with a name"),
        ("from \\\n    policy import x\n", "a statement that is not read"),
    ],
)
def test_what_cannot_be_rewritten_is_refused(source: str, why: str) -> None:
    with pytest.raises(WHEEL.PackageError, match=r"x\.py:1: "):
        WHEEL.rewritten(source, "x.py", MODULES)


def test_every_module_can_be_a_part_of_a_wheel() -> None:
    modules = set(WHEEL.modules_of(ROOT))
    assert len(modules) > 500
    files = [ROOT / "ringfence.py", *(path for part in WHEEL.PARTS for path in (ROOT / part).rglob("*.py"))]
    for path in files:
        text = path.read_text("utf-8")
        done = WHEEL.rewritten(text, path.relative_to(ROOT).as_posix(), modules)  # which parses its result
        assert done.count("\n") == text.count("\n"), path


def test_every_kind_of_file_is_a_part_of_a_wheel() -> None:
    found = {path.suffix for part in WHEEL.PARTS for path in (ROOT / part).rglob("*") if path.is_file()}
    assert found - WHEEL.SUFFIXES <= {".pyc"}


def test_every_allowed_text_is_there() -> None:
    assert [(file, text) for file, text in WHEEL.ALLOWED if text not in (ROOT / file).read_text("utf-8")] == []


def test_an_import_is_found_at_every_depth() -> None:
    """The last check of a rewritten file looks at statements only."""
    source = """
import a0
def function():
    import a1
class C:
    async def method(self):
        async with x: import a2
        async for y in z: import a3
        else: import a4
while 1:
    if 1: import a5
    elif 2: import a6
    else: import a7
for y in z: import a8
try: import a9
except A: import a10
else: import a11
finally: import a12
try: pass
except* A: import a13
match x:
    case 1 if (lambda: 1 if 2 else 3)():
        with x: import a14
"""
    found = [node for node in WHEEL._statements(ast.parse(source)) if isinstance(node, ast.Import)]
    assert sorted(node.names[0].name for node in found) == sorted(f"a{number}" for number in range(15))


def test_the_nodes_are_those_of_the_standard_library() -> None:
    tree = ast.parse((ROOT / "docs" / "wheel_package.py").read_text("utf-8"))
    assert [id(node) for node in WHEEL._nodes(tree)] == [id(node) for node in ast.walk(tree)]
