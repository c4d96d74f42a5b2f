"""Facts about commands: the rule files of `policy/commands`, parsed strictly into CommandRule values.

A file is a list of `[program]` and `["program subcommand"]` tables, one fact per key, and `[[example]]` tables that the
tests run. Loading splits the files into tables; a table is parsed when its program or subcommand is needed, so that
start-up and decisions do not pay for tables that are not used.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from typing import Any

from policy.model.assessment import RULE_CONSEQUENCES, Consequence, RuleRef
from policy.model.digest import sha256_hex
from policy.model.frozen import dataclass, replace
from policy.model.glob import late
from policy.model.tier import Tier
from policy.rules.rule import GRAMMARS, CommandRule, Flag, Operands, Role
from policy.rules.rule_file import Chunk, chunks


@dataclass(frozen=True, slots=True)
class RuleExample:
    """One example of a rule file for the tests: `run` must be assessed as `tier` (the worst one)."""

    run: str
    tier: Tier
    effects: tuple[str, ...]
    why: str
    ref: RuleRef


# Keys that are fields of CommandRule: sets of words, and texts. The other texts are parsed further.
_WORD_SETS = ("listing", "instead", "target", "alone", "below", "looks", "lists", "checks", "unless", "offline",
              "fetching", "family_except")  # fmt: skip
_TEXTS = ("changes", "port", "registry", "family")
_PARSED = ("why", "does", "tier", "flags", "whole", "operands", "uses", "also", "otherwise", "here", "grammar", "heeds",
           "loopback")  # fmt: skip
_SWITCHES = ("any", "open", "interpreter", "plain", "builtin", "tame", "single", "words", "unreached", "offline-first",
             "paths")  # fmt: skip
KEYS = (*_PARSED, *_WORD_SETS, *_TEXTS, *_SWITCHES)
_EXAMPLE_KEYS = ("run", "tier", "effects", "why")

_FLAG = late(
    r"(-#|--?[A-Za-z0-9@?^+][A-Za-z0-9@._+:-]*|\+[A-Za-z]*|@|-)(?:([=?])([a-z]*)(?:,([a-z]+))?)?(?:!([a-z-]+))?\Z"
)
_SLOT = late(r"([a-z]+)([*+?]?)\Z")
_TIERS = {tier.label: tier for tier in Tier if tier < Tier.SECRET}
_ROLES = {role.value: role for role in Role}
_SETS = ("sets",)


def _nearest(word: str, known: Iterable[str]) -> str:
    from policy.toml.schema import similar_name  # imported here: only error messages need it

    close = similar_name(word, known, cutoff=0.0)
    return f"did you mean `{close}`?" if close else ""


class _Table:
    """The keys and values of one table, read strictly: every wrong value raises RuleError. `keys` are the known keys,
    or None for a table whose keys are names.
    """

    __slots__ = ("chunk", "values")

    def __init__(self, chunk: Chunk, keys: Iterable[str] | None) -> None:
        self.chunk, self.values = chunk, chunk.table()
        for key, value in self.values.items():
            if keys is not None and key not in keys:
                raise chunk.error(f"there is no key `{key}`", _nearest(key, keys), key=key)
            if key in _SWITCHES and not isinstance(value, bool):
                raise chunk.error(f"`{key}` must be true or false", f"write {key} = true", key=key)

    def text(self, key: str) -> str:
        value = self.values.get(key, "")
        if not isinstance(value, str):
            raise self.chunk.error(f"`{key}` must be text", f'write {key} = "..."', key=key)
        return value

    def words(self, key: str) -> list[str]:
        return self.text(key).split()

    def tier(self, key: str) -> Tier | None:
        label = self.text(key)
        if label and label not in _TIERS:
            raise self.chunk.error(f"there is no tier `{label}`", _nearest(label, _TIERS), key=key)
        return _TIERS.get(label)

    def consequence(self) -> Consequence | None:
        label = self.text("does")
        if label and label not in RULE_CONSEQUENCES:
            fix = f"{_nearest(label, RULE_CONSEQUENCES)} it is one of: {', '.join(RULE_CONSEQUENCES)}"
            raise self.chunk.error(f"there is no consequence `{label}`", fix, key="does")
        return RULE_CONSEQUENCES.get(label)

    def flags(self, sets: Mapping[str, str]) -> dict[str, Flag]:
        """Return the flags of the named sets, and those of the flag lists `flags` and `whole`."""
        lists: list[tuple[str, str]] = []
        for name in self.words("uses"):
            if name not in sets:
                raise self.chunk.error(f"there is no flag set `{name}`", _nearest(name, sets), key="uses")
            lists.append(("uses", sets[name]))
        flags: dict[str, Flag] = {}
        for key, text in (*lists, ("flags", self.text("flags")), ("whole", self.text("whole"))):
            for token in text.split():  # such as `-bcd -k= -f=read --color? --output=write -i?!edit -#`
                try:
                    flags |= {flag.name: flag for flag in _flag(token, key == "whole")}
                except _FlagError as error:
                    raise self.chunk.error(*error.args, key=key) from None
        return flags

    def operands(self) -> Operands:
        head: list[Role] = []
        tail: list[Role] = []
        rest: Role | None = None
        for token in self.words("operands"):
            slot = _SLOT.match(token)
            if slot is None or slot[1] not in _ROLES or (slot[2] in ("*", "+") and rest is not None):
                raise self.chunk.error(f"`{token}` is not an operand", _nearest(token, _ROLES), key="operands")
            role = _ROLES[slot[1]]
            if slot[2] in ("*", "+"):
                rest = role
            else:
                (head if rest is None else tail).append(role)
        return Operands(tuple(head), rest, tuple(tail))


class _FlagError(Exception):
    """An error in a word of a flag list, with the expected form."""


@lru_cache(maxsize=8192)  # the same few flags are in hundreds of tables
def _flag(token: str, whole: bool) -> tuple[Flag, ...]:
    found = _FLAG.match(token)
    if found is None:
        raise _FlagError(f"`{token}` is not a flag", "")
    name, sign, role, second, mark = found.groups()
    if any(each and each not in _ROLES for each in (role, second)) or (mark and mark != "edit" and mark not in _TIERS):
        wrong = next((each for each in (role, second) if each and each not in _ROLES), None)
        fix = _nearest(wrong, _ROLES) if wrong else _nearest(mark or "", [*_TIERS, "edit"])
        raise _FlagError(f"`{token}` names nothing known", fix)
    takes = (_ROLES[role] if role else Role.DATA) if sign else None
    if sign and len(name) > 2 and not name.startswith("--") and not whole:
        raise _FlagError(f"`{token}` gives a value to every letter", f"write `-{name[1:-1]} -{name[-1]}{sign}{role}`")
    tier = None if mark in (None, "edit") else _TIERS[mark]
    shorts = [name] if name.startswith("--") or whole or name in ("-#", "+", "@", "-") else []
    return tuple(
        Flag(short, takes, sign == "?", tier, mark == "edit", _ROLES.get(second or ""))
        for short in shorts or [f"-{letter}" for letter in name[1:]]
    )


def _rule(chunk: Chunk, sets: Mapping[str, str]) -> CommandRule:
    """Return the rule of one table, validated key by key. The caller adds its subcommands."""
    table = _Table(chunk, KEYS)
    why = table.text("why")
    if not why:
        raise chunk.error(f"`{' '.join(chunk.words)}` has no `why`", 'say what it does: why = "..."')
    flags = table.flags(sets)
    grammar = table.text("grammar")
    if grammar and grammar not in GRAMMARS:
        raise chunk.error(f"no grammar `{grammar}`", _nearest(grammar, GRAMMARS), key="grammar")
    tier = table.tier("tier") or Tier.READ
    if table.values.get("open") and tier is Tier.READ:
        raise chunk.error("a command that only reads must list its flags", "remove `open`")
    if table.values.get("offline-first") and Tier.NETWORK not in (tier, table.tier("otherwise")):
        fix = 'write tier = "network", or remove the line'
        raise chunk.error("a command that starts without network must be one that connects", fix, key="offline-first")
    for key in ("fetching", "paths"):
        if table.values.get(key) and not table.values.get("offline-first"):
            raise chunk.error(f"`{key}` has a meaning only beside `offline-first`", "remove it", key=key)
    here = table.text("here")
    same: dict[str, Any] = {key.replace("-", "_"): bool(table.values.get(key)) for key in _SWITCHES if key != "any"}
    same |= {key: frozenset(table.words(key)) for key in _WORD_SETS} | {key: table.text(key) for key in _TEXTS}
    return CommandRule(
        name=" ".join(chunk.words),
        ref=chunk.ref,
        why=why,
        tier=tier,
        flags=flags,
        operands=table.operands(),
        anywhere=bool(table.values.get("any")),
        otherwise=table.tier("otherwise"),
        here=frozenset(here.split()) if here != "always" else frozenset(),
        here_always=here == "always",
        heeds=tuple(table.words("heeds")),
        loopback=frozenset(table.words("loopback")) if "loopback" in table.values else None,
        grammar=grammar,
        consequence=table.consequence(),
        **same,
    )


def _sets(tables: Iterable[Chunk]) -> dict[str, str]:
    sets: dict[str, str] = {}
    for chunk in tables:
        if chunk.words == _SETS:
            table = _Table(chunk, None)
            sets |= {key: table.text(key) for key in table.values}
    return sets


class _Subs(Mapping[str, CommandRule]):
    """The subcommands of a command by name, each parsed when it is needed."""

    __slots__ = ("_chunks", "_made", "_make")

    def __init__(self, named: dict[str, Chunk], make: Callable[[Chunk], CommandRule]) -> None:
        self._chunks, self._make = named, make
        self._made: dict[str, CommandRule] = {}

    def __getitem__(self, name: str) -> CommandRule:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._make(self._chunks[name])
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._chunks

    def __iter__(self) -> Iterator[str]:
        return iter(self._chunks)

    def __len__(self) -> int:
        return len(self._chunks)


def _assemble(tables: Iterable[Chunk], sets: Mapping[str, str]) -> CommandRule:
    """Return one program built from its tables: the program itself and its subcommands at any depth."""
    found: dict[tuple[str, ...], Chunk] = {}
    for chunk in tables:
        if chunk.words in found:
            raise chunk.error(f"`{' '.join(chunk.words)}` is described twice", "merge the two tables")
        found[chunk.words] = chunk
    below: dict[tuple[str, ...], dict[str, Chunk]] = {}
    for words, chunk in found.items():
        above = words[:-1]
        if not above:
            top = chunk
        elif above in found:
            below.setdefault(above, {}).update(dict.fromkeys([words[-1], *chunk.also], chunk))
        else:
            raise chunk.error(f"`{' '.join(above)}` is not described", "add its table first")

    def make(chunk: Chunk) -> CommandRule:
        rule = _rule(chunk, sets)
        subs = below.get(chunk.words)
        return rule if subs is None else replace(rule, subs=_Subs(subs, make))

    return make(top)


def _whole(rule: CommandRule) -> None:
    """Parse every subcommand. Raises the first RuleError."""
    for sub in rule.subs.values():
        _whole(sub)


def _by_program(tables: Iterable[Chunk]) -> dict[str, list[Chunk]]:
    programs: dict[str, list[Chunk]] = {}
    for chunk in tables:
        if chunk.words != _SETS:
            programs.setdefault(chunk.words[0], []).append(chunk)
    return programs


def _also(tables: Iterable[Chunk]) -> list[str]:
    """Return the other names of the program itself."""
    return [alias for chunk in tables if len(chunk.words) == 1 for alias in chunk.also]


def parse_rules(text: str, file: str) -> tuple[CommandRule, ...]:
    """Return the rules of one complete rule file. Raises RuleError with file, line and the nearest key."""
    tables = tuple(chunks(text, file))
    sets = _sets(tables)
    rules = []
    for own in _by_program(tables).values():
        rule = _assemble(own, sets)
        _whole(rule)
        rules += [rule, *(replace(rule, name=alias) for alias in _also(own))]
    return tuple(rules)


def parse_examples(text: str, file: str) -> tuple[RuleExample, ...]:
    """Return the `[[example]]` tables of one rule file, for the tests."""
    examples = []
    for chunk in chunks(text, file, examples=True):
        table = _Table(chunk, _EXAMPLE_KEYS)
        label = table.text("tier")
        tier = next((tier for tier in Tier if tier.label == label), None)
        if tier is None:
            raise chunk.error(f"there is no tier `{label}`", _nearest(label, _TIERS), key="tier")
        effects = table.values.get("effects", [])
        if not isinstance(effects, list):
            raise chunk.error("`effects` is a list of texts", key="effects")
        examples.append(RuleExample(table.text("run"), tier, tuple(map(str, effects)), table.text("why"), chunk.ref))
    return tuple(examples)


RuleIndex = dict[str, Any]  # see `RuleBook.index`
_PROGRAM, _OF, _TABLE = "|", ">", ";"  # before a program, its place, and each of its tables in the text of an index


class _IndexedChunks(Mapping[str, list[Chunk]]):
    """The tables of each program, cut out of the rule files at the places that an index names."""

    __slots__ = ("_cut", "_files", "_programs")

    def __init__(self, files: Mapping[str, str], programs: str) -> None:
        self._files, self._programs = files, programs
        self._cut: dict[str, list[Chunk]] = {}

    def _place(self, name: str) -> str:
        """Return the text of the index about a program; an empty text if there is none."""
        if _PROGRAM in name or _OF in name:
            return ""
        begin = f"{_PROGRAM}{name}{_OF}"
        found = self._programs.find(begin)
        start = found + len(begin)
        return self._programs[start : self._programs.index(_PROGRAM, start)] if found >= 0 else ""

    def __getitem__(self, name: str) -> list[Chunk]:
        found = self._cut.get(name)
        if found is None:
            first, *places = self._place(name).split(_TABLE)
            if not first:
                raise KeyError(name)
            found = _cut_out(self._files, first, places) if places else self[first]
            self._cut[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self._place(name))

    def __iter__(self) -> Iterator[str]:
        return (each.partition(_OF)[0] for each in self._programs.split(_PROGRAM)[1:-1])

    def __len__(self) -> int:
        return self._programs.count(_PROGRAM) - 1


def _cut_out(files: Mapping[str, str], file: str, places: Iterable[str]) -> list[Chunk]:
    cut = []
    for start, end, line, *words in map(str.split, places):
        cut.append(Chunk(tuple(words), files[file][int(start) : int(end)], file, int(line)))
    return cut


class RuleBook:
    """The index of all rules by the bare name of the program."""

    __slots__ = ("_chunks", "_digest", "_rules", "_sets", "files")

    def __init__(self, files: Mapping[str, str], index: RuleIndex | None = None) -> None:
        """Index rule files (name -> text). A table is parsed, and its errors raised, when it is needed; `check` parses
        all. `index` is what the method `index` returned for exactly these files, so that they are not searched again.
        """
        self.files = files
        self._digest: str = "" if index is None else index["digest"]
        self._rules: dict[str, CommandRule] = {}
        self._chunks: Mapping[str, list[Chunk]]
        self._sets: dict[str, Callable[[], dict[str, str]]]  # the flag sets by file, parsed when they are needed
        if index is not None:
            self._chunks = _IndexedChunks(files, index["programs"])
            self._sets = {
                file: cache(lambda file=file, places=places: _sets(_cut_out(files, file, places)))
                for file, places in index["sets"].items()
            }
            return
        self._sets, self._chunks = {}, (found := dict[str, list[Chunk]]())
        for file, text in files.items():
            tables = list(chunks(text, file))
            self._sets[file] = cache(partial(_sets, tables))
            for program, own in _by_program(tables).items():
                for name in (program, *_also(own)):
                    if name in found:
                        other = found[name][0]
                        why = f"`{name}` is described in {other.file}:{other.line} too"
                        raise own[0].error(why, "keep one of them")
                    found[name] = own

    @property
    def digest(self) -> str:
        """Return the SHA-256 (hex) of the texts of all files."""
        if not self._digest:
            self._digest = sha256_hex("\0".join(sorted(self.files.values())).encode("utf-8"))
        return self._digest

    def index(self) -> RuleIndex:
        """Return the places of all tables as JSON data: `programs`, the `sets` of each file, and `digest`.

        `programs` is one text, because a short command reads the places of a few programs of thousands. A program has
        its file and, for each table, its place: its first and last character in the file, its line, and the words of
        its header. Another name of a program has that name alone.
        """
        programs = _PROGRAM
        for name, own in self._chunks.items():
            program = own[0].words[0]
            place = program if name != program else _TABLE.join((own[0].file, *map(self._place, own)))
            programs += f"{name}{_OF}{place}{_PROGRAM}"
            assert not {_PROGRAM, _OF, _TABLE} & {*name, *own[0].file, *(char for each in own for char in each.words)}
        sets = {
            file: [self._place(chunk) for chunk in chunks(text, file) if chunk.words == _SETS]
            for file, text in self.files.items()
        }
        return {"programs": programs, "sets": sets, "digest": self.digest}

    def _place(self, chunk: Chunk) -> str:
        text = self.files[chunk.file]
        start = 0
        for _ in range(chunk.line - 1):
            start = text.index("\n", start) + 1
        return " ".join((str(start), str(start + len(chunk.text)), str(chunk.line), *chunk.words))

    def find(self, name: str) -> CommandRule | None:
        """Return the rule of the program `name`, or None for an unknown program."""
        if name not in self._rules and (own := self._chunks.get(name)):
            program = own[0].words[0]
            rule = _assemble(own, self._sets[own[0].file]()) if program == name else self.find(program)
            if rule is not None:
                self._rules[name] = rule if program == name else replace(rule, name=name)
        return self._rules.get(name)

    def names(self) -> tuple[str, ...]:
        """Return every program that has a rule, in alphabetical order."""
        return tuple(sorted(self._chunks))

    def families(self) -> dict[str, tuple[str, ...]]:
        """Return the families of reading commands by name, each with its programs."""
        found: dict[str, dict[str, None]] = {}
        for program, own in self._chunks.items():
            for chunk in own:
                if name := chunk.family:
                    found.setdefault(name, {})[program] = None
        return {name: tuple(programs) for name, programs in found.items()}

    def check(self) -> None:
        """Parse every table. Raises the first RuleError."""
        for name in self.names():
            rule = self.find(name)
            if rule is not None and rule.name == name:
                _whole(rule)
