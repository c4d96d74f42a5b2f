"""Facts about commands: the rule files of `policy/commands`, read strictly into CommandRule values.

A file is a list of `[program]` and `["program subcommand"]` tables, one fact a key, and `[[example]]` tables that the
tests run. Only the tables of a program that is asked for are parsed, so start-up does not pay for the whole world.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from policy.assessment import RuleRef
from policy.rule import GRAMMARS, CommandRule, Flag, Operands, Role
from policy.tier import Tier
from policy.verdict import Problem

__all__ = ["CommandRule", "Example", "RuleBook", "RuleError", "parse_examples", "parse_rules"]

FOLDER = "policy/commands"


@dataclass(frozen=True, slots=True)
class Example:
    """One line of a rule file that the tests judge: `run` must come out as `tier` (the worst one)."""

    run: str
    tier: Tier
    effects: tuple[str, ...]
    why: str
    ref: RuleRef


class RuleError(Exception):
    """A rule file that does not load: where, and what to do about it."""

    def __init__(self, file: str, line: int, problem: Problem) -> None:
        super().__init__(f"{file}:{line}: {problem}")
        self.file, self.line, self.problem = file, line, problem


_TEXT_KEYS = ("why", "tier", "flags", "whole", "operands", "uses", "also", "otherwise", "listing", "instead")
_MORE_TEXT_KEYS = ("target", "here", "grammar", "alone", "below", "heeds", "looks", "changes")
_SWITCHES = ("any", "open", "interpreter", "plain", "builtin", "tame")
KEYS = (*_TEXT_KEYS, *_MORE_TEXT_KEYS, *_SWITCHES)
_EXAMPLE_KEYS = ("run", "tier", "effects", "why")

_HEADER = re.compile(r'^\[(?:"([^"\]]+)"|([A-Za-z0-9_.+-]+)|\[example\])\]\s*(?:#.*)?$')
_ALSO = re.compile(r'^also\s*=\s*"([^"]*)"', re.MULTILINE)
_FLAG = re.compile(r"(-#|--?[A-Za-z0-9@?^+][A-Za-z0-9@._+-]*|\+|@|-)(?:([=?])([a-z]*)(?:,([a-z]+))?)?(?:!([a-z-]+))?\Z")
_SLOT = re.compile(r"([a-z]+)([*+?]?)\Z")
_TIERS = {tier.label: tier for tier in Tier if tier < Tier.SECRET}
_ROLES = {role.value: role for role in Role}


@dataclass(frozen=True, slots=True)
class _Chunk:
    """One table of a rule file as text: parsed when someone asks for it."""

    words: tuple[str, ...]  # () for an example
    text: str
    file: str
    line: int

    @property
    def ref(self) -> RuleRef:
        return RuleRef(f"{FOLDER}/{self.file}", self.line)


def _split(text: str, file: str) -> tuple[_Chunk, ...]:
    """Cut a rule file at its table headers."""
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith("[")]
    for line in lines[: starts[0] if starts else len(lines)]:
        if line.strip() and not line.lstrip().startswith("#"):
            raise _error(file, lines.index(line) + 1, f"`{line.strip()}` stands before the first table", "")
    chunks = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        found = _HEADER.match(lines[start])
        if found is None:
            raise _error(file, start + 1, f"`{lines[start]}` is not a table of a rule file", "")
        name = found[1] or found[2] or ""
        chunks.append(_Chunk(tuple(name.split()), "\n".join(lines[start:end]), file, start + 1))
    return tuple(chunks)


def _error(file: str, line: int, why: str, fix: str) -> RuleError:
    fix = fix or "write it as the other tables of that folder do"
    return RuleError(file, line, Problem("a rule file does not load", f"{file}:{line}: {why}", fix))


def _nearest(word: str, known: Iterable[str]) -> str:
    import difflib  # only on the way to an error

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.0)
    return f"did you mean `{close[0]}`?" if close else ""


def _table(chunk: _Chunk) -> dict[str, object]:
    import tomllib  # some milliseconds that `agent --version` does not pay

    try:
        whole = tomllib.loads(chunk.text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = chunk.line + (int(found[1]) - 1 if found else 0)
        raise _error(chunk.file, line, f"not TOML: {error}", "") from None
    (value,) = whole.values()
    table = value[0] if isinstance(value, list) else value
    return {str(key): item for key, item in table.items()} if isinstance(table, dict) else {}


def _line_of(chunk: _Chunk, key: str) -> int:
    for offset, line in enumerate(chunk.text.split("\n")):
        if line.split("=")[0].strip() == key:
            return chunk.line + offset
    return chunk.line


def _text(table: Mapping[str, object], key: str, chunk: _Chunk) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise _error(chunk.file, _line_of(chunk, key), f"`{key}` must be text", f'write {key} = "..."')
    return value


def _tier(table: Mapping[str, object], key: str, chunk: _Chunk) -> Tier | None:
    label = _text(table, key, chunk)
    if not label:
        return None
    if label not in _TIERS:
        raise _error(chunk.file, _line_of(chunk, key), f"there is no tier `{label}`", _nearest(label, _TIERS))
    return _TIERS[label]


def _flags(text: str, key: str, chunk: _Chunk) -> dict[str, Flag]:
    """Read a flag list such as `-bcd -k= -f=read --color? --output=write -i?!edit -#`."""
    flags: dict[str, Flag] = {}
    for token in text.split():
        found = _FLAG.match(token)
        if found is None:
            raise _error(chunk.file, _line_of(chunk, key), f"`{token}` is not a flag", "")
        name, sign, role, second, mark = found.groups()
        if any(each and each not in _ROLES for each in (role, second)) or (
            mark and mark != "edit" and mark not in _TIERS
        ):
            wrong = next((each for each in (role, second) if each and each not in _ROLES), None)
            fix = _nearest(wrong, _ROLES) if wrong else _nearest(mark or "", [*_TIERS, "edit"])
            raise _error(chunk.file, _line_of(chunk, key), f"`{token}` names nothing known", fix)
        takes = (_ROLES[role] if role else Role.DATA) if sign else None
        if sign and len(name) > 2 and not name.startswith("--") and key != "whole":
            fix = f"write `-{name[1:-1]} -{name[-1]}{sign}{role}`"
            raise _error(chunk.file, _line_of(chunk, key), f"`{token}` gives a value to every letter", fix)
        shorts = [name] if name.startswith("--") or key == "whole" or name in ("-#", "+", "@", "-") else []
        for short in shorts or [f"-{letter}" for letter in name[1:]]:
            tier = None if mark in (None, "edit") else _TIERS[mark]
            flags[short] = Flag(short, takes, sign == "?", tier, mark == "edit", _ROLES.get(second or ""))
    return flags


def _operands(text: str, chunk: _Chunk) -> Operands:
    head: list[Role] = []
    tail: list[Role] = []
    rest: Role | None = None
    for token in text.split():
        found = _SLOT.match(token)
        if found is None or found[1] not in _ROLES or (found[2] in ("*", "+") and rest is not None):
            line = _line_of(chunk, "operands")
            raise _error(chunk.file, line, f"`{token}` is not an operand", _nearest(token, _ROLES))
        role = _ROLES[found[1]]
        if found[2] in ("*", "+"):
            rest = role
        elif rest is None:
            head.append(role)
        else:
            tail.append(role)
    return Operands(tuple(head), rest, tuple(tail))


def _rule(chunk: _Chunk, sets: Mapping[str, str]) -> CommandRule:
    """One table, checked key by key. Its subcommands are put in by the caller."""
    table = _table(chunk)
    for key, value in table.items():
        if key not in KEYS:
            raise _error(chunk.file, _line_of(chunk, key), f"there is no key `{key}`", _nearest(key, KEYS))
        if key in _SWITCHES and not isinstance(value, bool):
            raise _error(chunk.file, _line_of(chunk, key), f"`{key}` is true or false", f"write {key} = true")
    why = _text(table, "why", chunk)
    if not why:
        raise _error(chunk.file, chunk.line, f"`{' '.join(chunk.words)}` has no `why`", 'say what it does: why = "..."')
    flags: dict[str, Flag] = {}
    for name in _text(table, "uses", chunk).split():
        if name not in sets:
            raise _error(chunk.file, _line_of(chunk, "uses"), f"there is no flag set `{name}`", _nearest(name, sets))
        flags |= _flags(sets[name], "uses", chunk)
    flags |= _flags(_text(table, "flags", chunk), "flags", chunk)
    flags |= _flags(_text(table, "whole", chunk), "whole", chunk)
    grammar = _text(table, "grammar", chunk)
    if grammar and grammar not in GRAMMARS:
        raise _error(chunk.file, _line_of(chunk, "grammar"), f"no grammar `{grammar}`", _nearest(grammar, GRAMMARS))
    tier = _tier(table, "tier", chunk) or Tier.READ
    if table.get("open") and tier is Tier.READ:
        raise _error(chunk.file, chunk.line, "a command that only reads must list its flags", "drop `open`")
    here = _text(table, "here", chunk)
    return CommandRule(
        name=" ".join(chunk.words),
        ref=chunk.ref,
        why=why,
        tier=tier,
        flags=flags,
        operands=_operands(_text(table, "operands", chunk), chunk),
        anywhere=bool(table.get("any")),
        open=bool(table.get("open")),
        otherwise=_tier(table, "otherwise", chunk),
        listing=frozenset(_text(table, "listing", chunk).split()),
        instead=frozenset(_text(table, "instead", chunk).split()),
        target=frozenset(_text(table, "target", chunk).split()),
        here=frozenset(here.split()) if here != "always" else frozenset(),
        here_always=here == "always",
        looks=frozenset(_text(table, "looks", chunk).split()),
        changes=_text(table, "changes", chunk),
        alone=frozenset(_text(table, "alone", chunk).split()),
        below=frozenset(_text(table, "below", chunk).split()),
        heeds=tuple(_text(table, "heeds", chunk).split()),
        interpreter=bool(table.get("interpreter")),
        plain=bool(table.get("plain")),
        builtin=bool(table.get("builtin")),
        tame=bool(table.get("tame")),
        grammar=grammar,
    )


def _sets(chunks: Iterable[_Chunk]) -> dict[str, str]:
    sets: dict[str, str] = {}
    for chunk in chunks:
        if chunk.words == ("sets",):
            sets |= {key: _text({key: value}, key, chunk) for key, value in _table(chunk).items()}
    return sets


def _assemble(chunks: Iterable[_Chunk], sets: Mapping[str, str]) -> CommandRule | None:
    """Make one program of its tables: the program itself and its subcommands, however deep."""
    found: dict[tuple[str, ...], CommandRule] = {}
    aliases: dict[tuple[str, ...], list[str]] = {}
    for chunk in chunks:
        if chunk.words in found:
            why = f"`{' '.join(chunk.words)}` is described twice"
            raise _error(chunk.file, chunk.line, why, "merge the two tables")
        found[chunk.words] = _rule(chunk, sets)
        aliases[chunk.words] = _text(_table(chunk), "also", chunk).split()
    for words in sorted(found, key=len, reverse=True):
        if len(words) == 1:
            return found[words]
        parent = found.get(words[:-1])
        if parent is None:
            ref = found[words].ref
            raise _error(
                ref.file.rpartition("/")[2],
                ref.line,
                f"`{' '.join(words[:-1])}` is not described",
                "add its table first",
            )
        named = dict.fromkeys([words[-1], *aliases[words]], found[words])
        found[words[:-1]] = replace(parent, subs={**parent.subs, **named})
    return None


def parse_rules(text: str, file: str) -> tuple[CommandRule, ...]:
    """Read and check one whole rule file. Raises RuleError with file, line and the nearest key."""
    chunks = _split(text, file)
    sets = _sets(chunks)
    programs: dict[str, list[_Chunk]] = {}
    for chunk in chunks:
        if chunk.words and chunk.words != ("sets",):
            programs.setdefault(chunk.words[0], []).append(chunk)
    rules = []
    for name, own in programs.items():
        rule = _assemble(own, sets)
        if rule is None:
            raise _error(file, own[0].line, f"`{name}` itself is not described", f"add a table [{name}]")
        aliases = (alias for chunk in own if len(chunk.words) == 1 for alias in _also(chunk))
        rules += [rule, *(replace(rule, name=alias) for alias in aliases)]
    return tuple(rules)


def _also(chunk: _Chunk) -> list[str]:
    found = _ALSO.search(chunk.text)
    return found[1].split() if found else []


def parse_examples(text: str, file: str) -> tuple[Example, ...]:
    """The `[[example]]` tables of one rule file, for the tests."""
    examples = []
    for chunk in _split(text, file):
        if chunk.words:
            continue
        table = _table(chunk)
        for key in table:
            if key not in _EXAMPLE_KEYS:
                raise _error(file, _line_of(chunk, key), f"there is no key `{key}`", _nearest(key, _EXAMPLE_KEYS))
        label = _text(table, "tier", chunk)
        tier = next((tier for tier in Tier if tier.label == label), None)
        if tier is None:
            raise _error(file, _line_of(chunk, "tier"), f"there is no tier `{label}`", _nearest(label, _TIERS))
        effects = table.get("effects", [])
        if not isinstance(effects, list):
            raise _error(file, _line_of(chunk, "effects"), "`effects` is a list of texts", "")
        told = tuple(str(effect) for effect in effects)
        examples.append(Example(_text(table, "run", chunk), tier, told, _text(table, "why", chunk), chunk.ref))
    return tuple(examples)


class RuleBook:
    """Finds the rule of a program by its bare name."""

    __slots__ = ("_chunks", "_files", "_rules")

    def __init__(self, rules: Iterable[CommandRule] = ()) -> None:
        self._rules: dict[str, CommandRule | None] = {rule.name: rule for rule in rules}
        self._chunks: dict[str, tuple[_Chunk, ...]] = {}
        self._files: dict[str, tuple[_Chunk, ...]] = {}

    @classmethod
    def from_files(cls, files: Mapping[str, str]) -> "RuleBook":
        """Index rule files (name -> text). A table is parsed, and its errors raised, when its program is asked for;
        `check` does all of them at once."""
        book = cls()
        for file, text in files.items():
            chunks = _split(text, file)
            book._files[file] = chunks
            own: dict[str, list[_Chunk]] = {}
            for chunk in chunks:
                if chunk.words and chunk.words != ("sets",):
                    own.setdefault(chunk.words[0], []).append(chunk)
            for program, tables in own.items():
                names = [program, *(alias for chunk in tables if len(chunk.words) == 1 for alias in _also(chunk))]
                for name in names:
                    if name in book._chunks:
                        other = book._chunks[name][0]
                        why = f"`{name}` is described in {other.file}:{other.line} too"
                        raise _error(file, tables[0].line, why, "keep one of them")
                    book._chunks[name] = tuple(tables)
        return book

    def find(self, name: str) -> CommandRule | None:
        """The rule of the program `name`, or None: not known, so never only a read."""
        if name in self._rules:
            return self._rules[name]
        chunks = self._chunks.get(name)
        rule = _assemble(chunks, _sets(self._files[chunks[0].file])) if chunks else None
        if rule is not None:
            self._rules[name] = rule if rule.name == name else replace(rule, name=name)
        return self._rules.get(name)

    def names(self) -> tuple[str, ...]:
        """Every program that has a rule, in alphabetical order."""
        return tuple(sorted({*self._rules, *self._chunks}))

    def check(self) -> None:
        """Parse every table; raises the first RuleError."""
        for name in self.names():
            self.find(name)
