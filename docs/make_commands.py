"""Generator of docs/reference/commands.md, the page about all known commands, from the command rules.

The page is not committed: `make site` and the build of the wheel generate it. With `--print` the page goes to standard
output.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from policy.model.tier import Tier  # noqa: E402  # the import path is set just above
from policy.rules.rule import CommandRule, Flag, Operands, Role  # noqa: E402  # the import path is set just above
from policy.rules.rulebook import RuleExample, parse_examples, parse_rules  # noqa: E402  # the import path is set just above

HEAD = """# Known commands

Generated from `policy/commands/*.toml`; do not edit this page. {programs} programs and {subs} subcommands.

A program, subcommand or flag that no table lists is `unknown`, which is a question in
nearly every mode. A row states the tier of the plain use; operands and flags add their own effects, and a path
outside the workspace, a secret or a substitution in the words counts separately. [policy.md](policy.md) explains the
tiers.

- **tier**: `read` unless stated otherwise. *any flags*: the flags are not listed, and the tier holds for
  all of them.
- **raised by**: flags that make it more than its tier. `-o FILE` writes FILE, `-i` (edits) changes the files it would
  read.
- **words**: the roles of its operands. `…` may be repeated, `[ ]` is optional. Operands that are plain text are not
  listed.
"""

_NAMES: Mapping[Role, str] = {
    Role.DATA: "text",
    Role.READ: "file read",
    Role.NAMES: "path looked at",
    Role.TREE: "folder looked through",
    Role.WRITE: "file written",
    Role.DELETE: "path deleted",
    Role.MOVE: "path moved away",
    Role.HOST: "host",
    Role.PORT: "port",
    Role.REMOTE: "remote",
    Role.UPLOAD: "data sent (`@FILE` sends a file)",
    Role.RUN: "command that it runs",
    Role.CODE: "code that is not read",
    Role.SCRIPT: "script that is read",
    Role.ARGS: "program file that it runs, with words of its own",
    Role.AWAY: "command that runs elsewhere",
    Role.MOUNT: "path that it gives away",
    Role.FROM: "path read, here or elsewhere",
    Role.TO: "path written, here or elsewhere",
    Role.FOLDER: "folder to work in",
    Role.REVISION: "revision or path",
    Role.REFSPEC: "refspec",
    Role.SED: "sed script that is read",
    Role.AWK: "awk program that is read",
    Role.JQ: "jq filter that is read",
}
_RAISING: Mapping[Role, str] = {
    Role.WRITE: "writes it",
    Role.DELETE: "deletes it",
    Role.MOVE: "moves it away",
    Role.RUN: "runs it",
    Role.CODE: "runs it",
    Role.SCRIPT: "its script is read",
    Role.ARGS: "runs it",
    Role.AWAY: "runs it elsewhere",
    Role.MOUNT: "gives it away",
    Role.TO: "writes it",
    Role.HOST: "connects to it",
    Role.REMOTE: "connects to it",
    Role.UPLOAD: "sends it",
}
_GRAMMARS = "its words have a grammar of their own"


def main() -> int:
    page = commands_page(ROOT / "policy" / "commands")
    if "--print" in sys.argv[1:]:
        sys.stdout.write(page)
    else:
        (ROOT / "docs" / "reference" / "commands.md").write_text(page, "utf-8")
    return 0


def commands_page(folder: Path) -> str:
    """The whole page, the same for the same rules."""
    texts = {path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.toml"))}
    families = {name: rows_of(parse_rules(text, name)) for name, text in texts.items()}
    programs = sum(len(names) for rows in families.values() for names, _ in rows if " " not in names[0])
    subs = sum(len(names) for rows in families.values() for names, _ in rows if " " in names[0])
    parts = [HEAD.format(programs=programs, subs=subs)]
    parts.append("\n".join(f"- [{_title(texts[name])}](#{_anchor(_title(texts[name]))})" for name in texts) + "\n")
    for name, rows in families.items():
        parts.append(f"## {_title(texts[name])}\n\nFrom `policy/commands/{name}`.\n")
        parts.append(_table(("command", "what it does", "tier", "raised by", "words"), map(_row, rows)))
        parts.append("Examples, which the tests run:\n")
        parts.append(_table(("example", "tier", "why"), map(_example, parse_examples(texts[name], name))))
    return "\n".join(parts)


def rows_of(rules: Iterable[CommandRule]) -> list[tuple[list[str], CommandRule]]:
    """Each table of a file once, with all its names, in the order of the file."""
    found: dict[int, tuple[list[str], CommandRule]] = {}

    def add(name: str, rule: CommandRule) -> None:
        found.setdefault(rule.ref.line, ([], rule))[0].append(name)
        for word, sub in rule.subs.items():
            add(f"{name} {word}", sub)

    for rule in rules:
        add(rule.name, rule)
    return [found[line] for line in sorted(found)]


def _row(item: tuple[list[str], CommandRule]) -> tuple[str, ...]:
    names, rule = item
    return (
        ", ".join(_code(name) for name in _shortest(names)),
        _cell(rule.why),
        _tier(rule),
        "; ".join(_raising(rule)),
        _words(rule),
    )


def _shortest(names: list[str]) -> list[str]:
    """Of `git-x log` and `git log`, aliases of a program, only those of its first name."""
    first = names[0].split(" ")[0]
    return [name for name in dict.fromkeys(names) if " " not in name or name.split(" ")[0] == first]


def _tier(rule: CommandRule) -> str:
    words = rule.tier.label
    if rule.open:
        words += ", any flags"
    if rule.otherwise is not None:
        words += f"; {rule.otherwise.label} in any other use"
    if rule.alone or rule.below:
        words += f" (read: {' '.join(_code(word) for word in sorted(rule.alone | rule.below))})"
    return words


def _raising(rule: CommandRule) -> Iterator[str]:
    """Flags that do more than the command, flags of one kind together."""
    kinds: dict[str, list[str]] = {}
    for flag in rule.flags.values():
        shown, kind = _flag(flag, rule.tier)
        if kind:
            kinds.setdefault(kind, []).append(_code(shown))
    if rule.changes:
        yield f"always changes {'the workspace' if rule.changes == '.' else _code(rule.changes)}"
    if rule.looks:
        yield f"only looks: {' '.join(_code(word) for word in sorted(rule.looks))}"
    if rule.checks:
        yield f"changes no operand: {' '.join(_code(word) for word in sorted(rule.checks))}"
    for kind, flags in sorted(kinds.items()):
        yield f"{kind}: {' '.join(flags)}"
    if rule.interpreter:
        yield "runs what its input says"


def _flag(flag: Flag, tier: Tier) -> tuple[str, str]:
    role = flag.second if flag.second in _RAISING else flag.role
    value = "" if flag.role is None else "[=…]" if flag.optional and flag.name.startswith("--") else " …"
    if flag.edits:
        return flag.name + value, "edits"
    if flag.tier is not None and flag.tier > tier:
        return flag.name + value, flag.tier.label
    return flag.name + value, _RAISING.get(role, "") if role is not None else ""


def _words(rule: CommandRule) -> str:
    if rule.grammar:
        return _GRAMMARS
    if rule.subs and not _listed(rule.operands):
        return ""
    return ", ".join(_listed(rule.operands))


def _listed(operands: Operands) -> list[str]:
    rest = [f"{_name(operands.rest)} …"] if operands.rest is not None else []
    found = [*(_name(role) for role in operands.head), *rest, *(_name(role) for role in operands.tail)]
    return found if any(name != _name(Role.DATA) and name != f"{_name(Role.DATA)} …" for name in found) else []


def _example(example: RuleExample) -> tuple[str, ...]:
    return _code(example.run), example.tier.label, _cell(example.why)


def _name(role: Role) -> str:
    return _NAMES.get(role, role.value)  # a role that is newer than this page is shown by its own name


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """As code in a table cell, whatever the text holds."""
    shown = text.replace("\n", "⏎").replace("|", "\\|")
    mark = "``" if "`" in shown else "`"
    pad = " " if "`" in shown else ""
    return f"{mark}{pad}{shown}{pad}{mark}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _title(text: str) -> str:
    """The first sentence of a rule file."""
    first = text.split("\n", 1)[0].lstrip("# ").strip()
    return first.split(". ")[0].rstrip(".:").split(": ")[0]


def _anchor(title: str) -> str:
    """Return the anchor that readers of Markdown give to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    sys.exit(main())
