"""Judge the tests by mutants: one-line changes of the program, drawn by a seed, each of which some test should notice.

A mutant is a flipped comparison, a negated condition, `and` for `or`, another constant, or a dropped statement. It is
judged by the test files that `tests.support.tests_of` names for its module. Two checkouts can be compared: the list that
`--draw` writes is applied by the text of the lines.

    python tests/fuzz/mutants.py --draw 200 --seed 38 mutants.jsonl
    python tests/fuzz/mutants.py mutants.jsonl --tree CHECKOUT --results results.jsonl
"""

import argparse
import ast
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("policy", "sandbox", "tools", "runner")
FLIPPED: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
SECONDS = 300  # for the tests of one mutant; a mutant that runs longer counts as noticed


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed line. `before` and `after` are the whole line; `nth` is its number among equal lines of the file."""

    file: str
    line: int
    nth: int
    kind: str
    before: str
    after: str


def mutants_of(path: Path, file: str) -> Iterator[Mutant]:
    """Yield each mutant of a file. Only changes within one line are made."""
    text = path.read_text("utf-8")
    lines = text.splitlines()
    seen: dict[str, list[int]] = {}
    for number, line in enumerate(lines, 1):
        seen.setdefault(line, []).append(number)
    for node, kind, column, end, new in _changes(ast.parse(text), lines):
        line = lines[node.lineno - 1]
        raw = line.encode()
        after = (raw[:column] + new.encode() + raw[end:]).decode()
        if after != line:
            yield Mutant(file, node.lineno, seen[line].index(node.lineno), kind, line, after)


def _changes(tree: ast.AST, lines: list[str]) -> Iterator[tuple[ast.expr | ast.stmt, str, int, int, str]]:
    skipped = {id(each) for each in _not_run(tree)}
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, (ast.expr, ast.stmt)) or node.lineno != node.end_lineno:
            continue
        raw = lines[node.lineno - 1].encode()
        start, end = node.col_offset, node.end_col_offset or 0

        def part(each: ast.expr, raw: bytes = raw) -> str:
            return raw[each.col_offset : each.end_col_offset].decode()

        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield (
                node,
                "comparison",
                start,
                end,
                f"{part(node.left)} {FLIPPED[type(node.ops[0])]} {part(node.comparators[0])}",
            )
        elif isinstance(node, ast.BoolOp):
            word = " or " if isinstance(node.op, ast.And) else " and "
            yield node, "and/or", start, end, word.join(f"({part(each)})" for each in node.values)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, "not", start, end, f"({part(node.operand)})"
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, "constant", start, end, str(not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            yield node, "constant", start, end, str(node.value + 1)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr, ast.Continue, ast.Break)) and not (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            yield node, "dropped", start, end, "pass"
        elif isinstance(node, ast.Return) and node.value is not None:
            yield node, "dropped", start, end, "return None"


def _not_run(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what no test can notice: annotations, and what only a type checker runs."""
    for node in ast.walk(tree):
        below: list[ast.AST] = []
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            below = [
                each
                for each in (node.returns, *(arg.annotation for arg in ast.walk(node.args) if isinstance(arg, ast.arg)))
                if each
            ]
        elif isinstance(node, ast.AnnAssign):
            below = [node.annotation]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            below = [node]
        for each in below:
            yield from ast.walk(each)


def draw(number: int, seed: int) -> list[Mutant]:
    """Return mutants of all packages: as many of each as it has lines, and a tenth of all at least."""
    pools: dict[str, list[Mutant]] = {
        package: [
            mutant
            for path in sorted((ROOT / package).rglob("*.py"))
            for mutant in mutants_of(path, str(path.relative_to(ROOT)))
        ]
        for package in PACKAGES
    }
    least = number // 10
    whole = sum(map(len, pools.values()))
    shares = {name: max(least, number * len(pool) // whole) for name, pool in pools.items()}
    shares["runner"] += number - sum(shares.values())
    chance = random.Random(seed)
    return [mutant for name, pool in pools.items() for mutant in chance.sample(pool, shares[name])]


def judge(mutant: Mutant, tree: Path, most: int) -> dict[str, object]:
    """Return what the tests of its module say of a mutant in a checkout."""
    path = tree / mutant.file
    text = path.read_text("utf-8")
    lines = text.split("\n")
    places = [number for number, line in enumerate(lines) if line == mutant.before]
    if len(places) <= mutant.nth:
        return {"verdict": "not there"}
    lines[places[mutant.nth]] = mutant.after
    files = _tests_of(tree, mutant.file, most)
    python = tree / ".venv/bin/python"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.monotonic()
    try:
        path.write_text("\n".join(lines), "utf-8")
        run = subprocess.Popen(
            [str(python), "-m", "pytest", "-x", "-q", "-n", "2", "--no-header", "-p", "no:cacheprovider", *files],
            cwd=tree, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = run.communicate(timeout=SECONDS)
            verdict = {0: "missed", 5: "no test"}.get(run.returncode, "noticed")
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            said, _ = run.communicate()
            verdict = "too long"
    finally:
        path.write_text(text, "utf-8")
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return {"verdict": verdict, "seconds": round(time.monotonic() - began), "files": len(files), "by": failed[:1]}


def _tests_of(tree: Path, file: str, most: int) -> list[str]:
    from tests.support import tests_of

    return tests_of.tests_of([file], root=tree, most=most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path, help="the mutants, one JSON object a line")
    parser.add_argument("--draw", type=int, metavar="NUMBER", help="draw so many mutants and write the list")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout with the tests; it is changed meanwhile")
    parser.add_argument(
        "--results", type=Path, help="one JSON object a line; mutants that are there already are left out"
    )
    parser.add_argument("--most", type=int, default=8, help="test files for one mutant")
    asked = parser.parse_args()
    if asked.draw:
        rows = [json.dumps(asdict(mutant)) + "\n" for mutant in draw(asked.draw, asked.seed)]
        asked.list.write_text("".join(rows), "utf-8")
        return
    mutants = [Mutant(**json.loads(line)) for line in asked.list.read_text("utf-8").splitlines()]
    done = len(asked.results.read_text().splitlines()) if asked.results.exists() else 0
    for number, mutant in enumerate(mutants[done:], done):
        result = {"number": number, **judge(mutant, asked.tree.resolve(), asked.most)}
        with asked.results.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(result["verdict"], mutant.file, mutant.line, mutant.after.strip(), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
