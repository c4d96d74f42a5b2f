"""`make tables`: run the escape attempts, the everyday work and the hostile model on every backend, and write the
results into docs/security/, between the marks. It takes several minutes for each backend and user.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.places import ROOT, TESTS

SECURITY = ROOT / "docs" / "security"
PAGES = {
    "escapes": SECURITY / "escapes.md",
    "everyday": SECURITY / "escapes.md",
    "stays": SECURITY / "escapes.md",
    "attacks": SECURITY / "attacks.md",
}
WORDS = {"CONTAINED": "held", "ESCAPED": "**ESCAPED**", "NA": "-", "ERROR": "error"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", action="append", help="of the registry; again for more; default: all there are")
    parser.add_argument(
        "--rows-only", action="store_true", help="run nothing: the rows, with the answers that are there"
    )
    parser.add_argument(
        "--answers", action="append", help="what `run.py --json` printed, instead of running it; again for more"
    )
    parser.add_argument("--no-everyday", action="store_true", help="leave the table of everyday work as it is")
    parser.add_argument("--no-escapes", action="store_true", help="leave the table of escape attempts as it is")
    parser.add_argument("--no-attacks", action="store_true", help="leave the table of attacks as it is")
    parser.add_argument("--new-attacks", action="store_true", help="of the attacks, run those without an answer")
    told = parser.parse_args()
    if told.rows_only:
        if not told.no_escapes:
            write("escapes", escapes(kept(), listed()))
            write("stays", stays())
        if not told.no_attacks:
            write("attacks", attacks_table(attacks_kept()))
        return
    if told.answers:
        write(
            "escapes", escapes([each for file in told.answers for each in json.loads(Path(file).read_text())], listed())
        )
        return
    if not told.no_escapes:
        chosen = [part for name in told.backend or () for part in ("--backend", name)]
        argv = [sys.executable, TESTS / "escapes" / "run.py", "--json", *chosen]
        run = subprocess.run(argv, stdout=subprocess.PIPE, check=False)
        write("escapes", escapes(json.loads(run.stdout), listed()))
    if not told.no_everyday:
        write("everyday", everyday(told.backend))
    if not told.no_attacks:
        write("attacks", attacks_table(attacks_run(attacks_kept() if told.new_attacks else {})))


def listed() -> list[Any]:
    from tests.escapes.run import ATTEMPTS

    return list(ATTEMPTS)


def escapes(answers: list[dict[str, str]], attempts: list[Any]) -> str:
    """Counts by column, then a row for each attempt; what an escape showed stands below."""
    # An attempt that gains nothing unconfined proves nothing under any backend, whichever run had the control.
    vain = {(each["user"], each["name"]) for each in answers if each["verdict"] == "NA"}
    answers = [
        {**each, "verdict": "NA"} if each["verdict"] == "CONTAINED" and (each["user"], each["name"]) in vain else each
        for each in answers
    ]
    columns = list(dict.fromkeys((each["backend"], each["user"]) for each in answers))
    found = {(each["backend"], each["user"], each["name"]): each for each in answers}
    heads = [f"{backend} as {user}" for backend, user in columns]
    lines = ["| | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(columns)]
    for word, meaning in (("CONTAINED", "held"), ("ESCAPED", "**escaped**"), ("NA", "cannot be judged here"), ("ERROR", "error")):  # fmt: skip
        counts = [sum(1 for each in answers if (each["backend"], each["user"], each["verdict"]) == (*column, word)) for column in columns]  # fmt: skip
        lines.append(f"| {meaning} | " + " | ".join(map(str, counts)) + " |")
    lines += ["", "| attempt | kind | what would be gained | " + " | ".join(heads) + " |"]
    lines.append("| --- | --- | --- |" + " --- |" * len(columns))
    for each in attempts:
        cells = [WORDS.get(found.get((*column, each.name), {}).get("verdict", ""), "?") for column in columns]
        lines.append(f"| `{each.name}` | {each.kind} | {each.why} | " + " | ".join(cells) + " |")
    bad = [each for each in answers if each["verdict"] in ("ESCAPED", "ERROR")]
    if bad:
        lines += ["", "What showed it:", ""]
        lines += [f"- {each['backend']} as {each['user']}, `{each['name']}`: {told(each['why'])}" for each in bad]
    return "\n".join(lines)


def stays() -> str:
    """Return a row for each attempt of a process that stays. tests/sandbox/test_escapes_of_processes.py runs them."""
    from tests.escapes.attempts_stays import STAYS

    lines = ["| attempt | kind | what would be gained | runs on |", "| --- | --- | --- | --- |"]
    lines += [f"| `{each.name}` | {each.kind} | {each.why} | {', '.join(each.tiers)} |" for each in STAYS]
    return "\n".join(lines)


def told(why: str) -> str:
    """One line of printable characters, as a word of the document."""
    why = re.sub(r"/\S*escapes-\w+/(stage-\w+/)?", "", why)  # where the world lay that day
    return "".join(c if c.isprintable() and c not in "|`<>" else " " for c in why)[:160].strip()


def everyday(chosen: list[str] | None) -> str:
    """A row for each work; what failed without a known reason says below what it said."""
    from tests.escapes.run import available
    from tests.support import compat_rows
    from tests.support.container_bench import EVERYDAY, dock
    from tests.support.sandbox_bench import USERS

    ran = chosen or available()
    cells, said = everyday_kept([name for name in compat_rows.BACKENDS if name not in ran])
    with contextlib.ExitStack() as stack:
        docked = stack.enter_context(dock(EVERYDAY)) if "container" in ran else None
        for backend, user in ((name, user) for name in compat_rows.BACKENDS if name in ran for user in USERS):
            with compat_rows.everyday(user, docked if backend == "container" else None) as place:
                for row in compat_rows.rows():
                    result = place.run(row, backend)
                    cells[f"{backend} as {user}", row.name] = cell(backend, row.name, result)
                    print(f"{backend:<10} {user:<7} {cell(backend, row.name, result):<10} {row.name}", file=sys.stderr)
                    if not result.ok and not result.missing:
                        said.append(f"- {backend} as {user}, {row.name}: {told(result.said) or 'nothing'}")
    heads = dict.fromkeys(head for head, _ in cells)
    columns = [head for backend in compat_rows.BACKENDS for head in heads if head.partition(" ")[0] == backend]
    lines = ["| everyday work | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
    for row in compat_rows.rows():
        lines.append(f"| {row.name} | " + " | ".join(cells.get((head, row.name), "?") for head in columns) + " |")
    if said:
        lines += ["", "What those that fail said:", ""]
        lines += [line for head in columns for line in said if line.startswith(f"- {head},")]
    return "\n".join(lines)


def everyday_kept(backends: list[str]) -> tuple[dict[tuple[str, str], str], list[str]]:
    """The cells that the document holds for backends that are not run, and what they said."""
    table = between("everyday")
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    cells = {
        (head, row[0]): cell
        for row in rows[2:]
        for head, cell in zip(rows[0][1:], row[1:], strict=True)
        if head.partition(" ")[0] in backends
    }
    return cells, [line for line in table.splitlines() if line[:2] == "- " and line.split()[1] in backends]


def cell(backend: str, name: str, result: Any) -> str:
    from tests.support.compat_rows import REFUSED

    if result.ok:
        return "works"
    if result.missing:
        return f"`{result.missing}` is not in the image" if backend == "container" else f"no `{result.missing}` here"
    return f"no: {REFUSED[backend][name]}" if name in REFUSED[backend] else "**fails**"


def kept() -> list[dict[str, str]]:
    """The answers that the document holds: attempts come and go, and running them all takes its time."""
    table = between("escapes")
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    heads = next((row[3:] for row in rows if row[0] == "attempt"), [])
    words = {shown: word for word, shown in WORDS.items()}
    return [
        {"backend": head.split()[0], "user": head.split()[2], "name": row[0].strip("`"), "verdict": words[cell], "why": ""}
        for row in rows if row[0][:1] == "`"
        for head, cell in zip(heads, row[3:], strict=True) if cell in words
    ]  # fmt: skip


def attacks_run(known: dict[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    """By user and attack: `held`, or that it did not. `known`: what need not be run."""
    from tests.adversary.arena import played
    from tests.adversary.attacks import ATTACKS
    from tests.support.sandbox_bench import USERS

    cells = dict(known)
    for user in USERS:
        name = "nobody" if user == "nobody" else "root"
        for told in played(user, attacks=[each for each in ATTACKS if known.get((name, each.id), "?") == "?"]):
            cells[name, told.attack.id] = "**NOT HELD**" if told.wrong else "held"
            for line in told.wrong:
                print(f"{user:<7} {told.attack.id:<22} {line}", file=sys.stderr)
    return cells


def attacks_kept() -> dict[tuple[str, str], str]:
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in between("attacks").splitlines()]
    return {
        (user, row[0].strip("`")): cell
        for row in rows
        if row[0][:1] == "`"
        for user, cell in zip(("root", "nobody"), row[-2:], strict=True)
    }


def attacks_table(cells: dict[tuple[str, str], str]) -> str:
    """A row for each attack; all but the last two columns follow from the attacks themselves."""
    from tests.adversary.attacks import ATTACKS

    lines = ["| attack | kind | what it tries | how it ends | threat | as root | as nobody |", "| --- |" + " --- |" * 6]
    for each in ATTACKS:
        held = [cells.get((user, each.id), "?") for user in ("root", "nobody")]
        lines.append(f"| {' | '.join([*each.row, *held])} |")
    return "\n".join(lines)


def between(name: str) -> str:
    return PAGES[name].read_text("utf-8").partition(f"<!-- {name}: begin -->")[2].partition(f"<!-- {name}: end -->")[0]


def write(name: str, text: str) -> None:
    page = PAGES[name]
    before, begin, rest = page.read_text("utf-8").partition(f"<!-- {name}: begin -->\n")
    _, end, after = rest.partition(f"<!-- {name}: end -->")
    if not begin or not end:
        sys.exit(f"{page.name} has no marks for `{name}`")
    page.write_text(f"{before}{begin}{text}\n{end}{after}", "utf-8")


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
