"""The test files that concern one module: `python -m tests.support.tests_of MODULE...`, or `make tests-of MODULE=...`.

MODULE is a path (`policy/classify.py`), a dotted name (`policy.classify`), or a file of data (`policy/commands/git.toml`).
The files are ordered by relevance. Four things count: how far the module is from the test file in the graph of imports,
how many of the names and texts of the module the test file mentions, how alike their file names are, and that a test
file in `unit/` or `laws/` runs sooner than one that needs a sandbox. The graph has also what is loaded by name (handlers
of the policy, commands of `agent`, programs that run in the sandbox) and the modules that read a file of data.

`--most N` limits the number of files for each module. `--run` runs pytest on them; options that are unknown here are
passed on to pytest.
"""

import argparse
import ast
import heapq
import math
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tests.support.places import ROOT

MOST = 12
FOLDERS = ("policy", "tools", "sandbox", "runner", "profiles", "templates", "docs", "tests")
# Statements of imports, those in the text of a program that a test starts included. `ast` takes four times as long.
IMPORT = re.compile(
    r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(?:\(((?:[^)#]|#[^\n]*)*)\)|([^\n#]*))|^[ \t]*import[ \t]+([\w., \t]+)",
    re.MULTILINE,
)
QUOTED = re.compile(r"""["']([\w./:*{}-]{2,80})["']""")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
NEAR = {1.0: 1.0, 1.5: 0.7, 2.0: 0.45, 2.5: 0.3, 3.0: 0.2, 3.5: 0.15, 4.0: 0.1}  # by the distance; 0.05 for larger ones
QUICK = {"unit": 0.15, "laws": 0.1, "process": 0.05}  # by the folder of the test file
PHRASES = 60  # texts of a module that are looked for, the longest first


@dataclass(frozen=True)
class Tree:
    """The text files of the project, and what each of them uses."""

    root: Path
    texts: dict[str, str] = field(repr=False)

    @classmethod
    def read(cls, root: Path = ROOT) -> "Tree":
        paths = [
            Path(folder, name)
            for top in FOLDERS
            for folder, folders, names in os.walk(root / top, onerror=None)
            if not folders.sort() and "__pycache__" not in folder
            for name in sorted(names)
            if name.endswith((".py", ".toml"))
        ]
        paths += [path for path in [root / "ringfence.py"] if path.exists()]
        return cls(root, {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in sorted(paths)})

    @cached_property
    def modules(self) -> dict[str, str]:
        """The path of each module, by its dotted name."""
        names = (path for path in self.texts if path.endswith(".py"))
        return {path[:-3].replace("/", ".").removesuffix(".__init__"): path for path in names}

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        """The paths of the files with each name."""
        found: dict[str, list[str]] = defaultdict(list)
        for path in self.texts:
            found[path.rpartition("/")[2]].append(path)
        return found

    @cached_property
    def tests(self) -> list[str]:
        return [
            path for path in self.texts if path.startswith("tests/") and path.rpartition("/")[2].startswith("test_")
        ]

    @cached_property
    def words(self) -> dict[str, set[str]]:
        """The identifiers and words in each file of Python."""
        return {path: set(WORD.findall(self.texts[path])) for path in self.modules.values()}

    @cached_property
    def users(self) -> dict[str, set[str]]:
        """The files that use each file."""
        found: dict[str, set[str]] = defaultdict(set)
        for path, text in self.texts.items():
            if path.endswith(".py"):
                for used in {*self._imported(text), *self._named(path, text)} - {path}:
                    found[used].add(path)
        return found

    def _imported(self, text: str) -> Iterator[str]:
        for parent, several, one, plain in IMPORT.findall(text):
            if plain:
                names = [each.strip().partition(" ")[0] for each in plain.split(",")]
            else:
                listed = re.sub(r"#[^\n]*", "", several) or one
                parts = [each.strip().partition(" ")[0] for each in listed.split(",")]
                names = [full if (full := f"{parent}.{each}") in self.modules else parent for each in parts if each]
            yield from (self.modules[name] for name in names if name in self.modules)

    def _named(self, path: str, text: str) -> Iterator[str]:
        """Yield the files that the texts in a module name: a file by its name, a module that is loaded by its name."""
        folder = path.rpartition("/")[0]
        loads = "import_module(" in text or path == "runner/cli/command_table.py"
        for quoted in set(QUOTED.findall(text)):
            name = quoted.rpartition("/")[2]
            if name.endswith((".py", ".toml")):
                found = [each for each in self.by_name.get(name, ()) if each.endswith(quoted.lstrip("./"))]
                yield from found if len(found) == 1 else [each for each in found if each.startswith(f"{folder}/")]
            elif loads:
                first = re.split(r"[.:]", quoted.lstrip("."))[0]
                module = f"{folder}/{first}.py"
                if module in self.texts:
                    yield module

    def readers(self, path: str) -> set[str]:
        """Return the files that use a file of data: those that name the file, or else its folder and its kind."""
        folder, _, name = path.rpartition("/")
        inner, kind = folder.rpartition("/")[2], f"*.{name.rpartition('.')[2]}"
        return {
            each
            for each, text in self.texts.items()
            if each.endswith(".py")
            and (name in text or ((f'"{inner}"' in text or f"{inner}/" in text) and (kind in text or kind[1:] in text)))
        }


def distances(tree: Tree, path: str) -> dict[str, float]:
    """Return the number of steps from `path` to each file that uses it, directly or through others.

    A module of `tests/support` is half a step. A test file ends a way: a file that imports it runs the same tests again.
    """
    found: dict[str, float] = {}
    rest = [(0.0, path)]
    while rest:
        steps, each = heapq.heappop(rest)
        if each in found:
            continue
        found[each] = steps
        if not each.rpartition("/")[2].startswith("test_"):
            cost = 0.5 if each.startswith("tests/") else 1.0
            users = tree.users[each] if each.endswith(".py") else tree.readers(each)
            for user in users - found.keys():
                heapq.heappush(rest, (steps + cost, user))
    return found


def terms(path: str, text: str) -> tuple[set[str], set[str]]:
    """Return the names that a module defines, and the texts in it: a test that mentions them is about the module."""
    names: set[str] = set()
    phrases: set[str] = set()
    if not path.endswith(".py"):
        names |= set(WORD.findall(" ".join(re.findall(r"^\[+([^\]]+)\]", text, re.MULTILINE))))
        return names, phrases
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            names.add(node.name)
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and getattr(mark.func, "attr", "") == "command":
                    names |= {each.value for each in mark.args if isinstance(each, ast.Constant)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            phrases |= {part for part in re.split(r"[\n`{}]", node.value) if len(part.strip()) >= 10}
            if re.fullmatch(r"[A-Za-z][\w-]{2,40}", node.value):
                (phrases if "-" in node.value else names).add(node.value)
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {each.id for each in targets if isinstance(each, ast.Name)}
    longest = sorted({each.strip() for each in phrases}, key=lambda each: (-len(each), each))[:PHRASES]
    return {each for each in names if len(each) > 2 and not each.startswith("__")}, set(longest)


def mentions(tree: Tree, names: Iterable[str], phrases: Iterable[str]) -> dict[str, float]:
    """Return, for each test file, how much of the names and texts it has, from 0 to 1.

    What few test files have counts more, and a name that many modules have as well counts less.
    """
    product = [words for path, words in tree.words.items() if not path.startswith("tests/")]
    found: dict[str, float] = dict.fromkeys(tree.tests, 0.0)
    for name in sorted(names):
        having = [path for path in tree.tests if name in tree.words[path]]
        spread = 1 + math.log(max(1, sum(name in words for words in product)))
        for path in having:
            found[path] += math.log(len(tree.tests) / len(having)) / spread
    for text in sorted(phrases):
        having = [path for path in tree.tests if text in tree.texts[path]]
        for path in having:
            found[path] += math.log(len(tree.tests) / len(having))
    most = max(found.values(), default=0.0) or 1.0
    return {path: value / most for path, value in found.items()}


def name_words(path: str) -> set[str]:
    """Return the words of a file's name, without the ending of a plural: `policy/handlers/tar.py` has `tar`."""
    stem = path.rpartition("/")[2].rpartition(".")[0].removeprefix("test_")
    if stem == "__init__":
        stem = path.split("/")[-2]
    return {word.removesuffix("s") for word in stem.split("_")}


def ranked(tree: Tree, path: str) -> list[str]:
    """Return every test file that has to do with `path`, the most relevant one first."""
    if path in tree.tests:
        return [path]
    names, phrases = terms(path, tree.texts.get(path, ""))
    mentioned = mentions(tree, names, phrases)
    # The names in a file of data are those of many subjects, and its folder is what its readers are called after.
    weight, beside = (1.2, 0.3) if path.endswith(".py") else (0.3, 1.0)
    steps = distances(tree, path)
    common = {word: sum(word in name_words(each) for each in tree.tests) for word in name_words(path)}
    folder = {word.removesuffix("s") for word in path.split("/")[:-1] for word in word.split("_")}

    def score(test: str) -> float:
        near = NEAR.get(steps[test], 0.05) if test in steps else 0.0
        words = name_words(test)
        alike = sum(1 / (1 + math.log(max(common[word], 1))) for word in common if word in words) / len(common)
        alike += beside * len(words & folder) / len(words)
        text = tree.words[test]
        spoken = 0.2 * sum(word in text for word in common) / len(common)
        related = near + weight * mentioned[test] + 0.8 * alike + spoken
        return related + QUICK.get(test.split("/")[1], 0.0) if related > 0.05 else 0.0

    scores = {test: score(test) for test in tree.tests}
    return sorted((test for test in tree.tests if scores[test] > 0.0), key=lambda test: (-scores[test], test))


def path_of(tree: Tree, given: str) -> str:
    """Return the path of a module, relative to the project. Raises SystemExit if there is no such file."""
    name = given if not given.startswith("/") else os.path.relpath(given, tree.root)
    name = name.removeprefix("./").rstrip("/")
    if name in tree.modules:
        return tree.modules[name]
    if f"{name}/__init__.py" in tree.texts:
        return f"{name}/__init__.py"
    if not (tree.root / name).is_file():
        raise SystemExit(f"there is no module `{given}`: give a path such as `policy/classify.py`, or a dotted name")
    return name


def relevant_tests(tree: Tree, given: Iterable[str], most: int = MOST) -> list[str]:
    """Return at most `most` test files for each of the modules, the most relevant ones first. There is always one."""
    each = [ranked(tree, path_of(tree, name))[:most] for name in given]
    longest = max(map(len, each), default=0)
    return list(dict.fromkeys(files[number] for number in range(longest) for files in each if number < len(files)))


def tests_of(given: Iterable[str], root: Path = ROOT, most: int = MOST) -> list[str]:  # noqa: PT028  # no test
    """Return the test files of the modules in the checkout `root`."""
    return relevant_tests(Tree.read(root), given, most)


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.tests_of", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("modules", nargs="+", metavar="MODULE")
    parser.add_argument("--most", type=int, default=MOST, help="at most this many files for each module")
    parser.add_argument("--run", action="store_true", help="run pytest on the files")
    chosen, others = parser.parse_known_args(words)
    files = tests_of(chosen.modules, most=chosen.most)
    if chosen.run:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *others, *files])
    if others:
        parser.error(f"without --run, {others[0]} has no meaning")
    print("\n".join(files))


if __name__ == "__main__":
    main(sys.argv[1:])
