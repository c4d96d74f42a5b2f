"""What an action does, told in one line to a person who is no expert: the worst first, counted and grouped."""

import re
from collections.abc import Callable, Iterable, Iterator

from policy.describe.consequences import LOSSES
from policy.describe.phrases import MOST_NAMED, Around, joined, listed, named, near, plain, powers
from policy.describe.secret_kinds import secret_kind
from policy.model.action import RunScript
from policy.model.assessment import Assessment, Effect, EffectKind, Reason, Scope
from policy.model.facts import Kind, PathFact
from policy.model.host_words import nearby
from policy.model.tier import Tier
from policy.model.verdict import UNNAMED, Terms

_MOST_TOLD = 5  # things told before "and more"
_LONGEST = 160
_MOST_TYPED = 40

# A reason that a rule gave: `git commit` records changes.
_RULED = re.compile(r"`([^`]+)`:? (.+)", re.DOTALL)
_ABOUT_PATHS = ("writes ", "deletes ", "changes ")
_VERBS = {EffectKind.DELETES: "deletes", EffectKind.WRITES: "changes", EffectKind.READS: "reads"}
_ELSEWHERE = (Scope.OUTSIDE, Scope.SYSTEM)

# Programs whose code stands in the command itself, or anywhere; with all others it is what the repository says.
_INTERPRETER = re.compile(
    r"(?:python|pypy|node|nodejs|deno|bun|perl|ruby|php|lua|bash|sh|dash|zsh|ksh|fish|[gmn]?awk|sed|R|Rscript|julia"
    r"|groovy|java|ghci|irb|tclsh|osascript|pwsh|sqlite3)[0-9.]*\Z"
)


def doing(assessment: Assessment, around: Around) -> str:
    """What the action does, as the end of a sentence that starts with it. One line, nothing in it can move a cursor."""
    said = list(dict.fromkeys(plain(part, _LONGEST) for part in _Telling(assessment, around).parts()))
    if len(said) > _MOST_TOLD:
        said = [*said[:_MOST_TOLD], "does more"]
    if any(char in part for part in said for char in ",:;"):
        return "; ".join(said)
    return joined(said) if said else "only reads the workspace and the system"


def question(assessment: Assessment, terms: Terms, around: Around) -> str:
    """One line: what the action does, and all that a yes would let it do."""
    told = doing(assessment, around)
    mark = ": " if told.startswith("`") else " "
    given = "; ".join((powers(terms, around, assessment.action), *caveats(assessment, terms)))
    return f"{named(assessment.action, around)}{mark}{told}. {given}. Allow it?"


def caveats(assessment: Assessment, terms: Terms) -> tuple[str, ...]:
    """What a yes would not get, although the action wants it."""
    found = []
    if UNNAMED in terms.hosts:
        found.append(
            "whom it talks to is known only when it runs: that host is stopped and named, "
            "and one more yes, `--host` or a rule opens it"
        )
    elif Tier.NETWORK in assessment.tiers and not terms.hosts:
        found.append("what needs the network will fail, since no host is known (name it with `--host`, or in a rule)")
    inner = [host for host in terms.hosts if nearby(host)]
    if inner:
        where = "which is this machine or a private network"
        found.append(f"{listed(inner)}, {where}, stays closed until you say `{inner[0]} private`")
    return tuple(found)


def secrets_read(assessment: Assessment, around: Around) -> str | None:
    """What it would do to secrets, or None when no effect names one."""
    said = list(_secrets_told(assessment.effects, around))
    return joined(said) if said else None


class _Telling:
    """The parts of one line. What a better phrase has told already is not told again."""

    def __init__(self, assessment: Assessment, around: Around) -> None:
        self.around = around
        self.reasons = assessment.reasons
        self.effects = assessment.effects
        self._look: Callable[[str], PathFact] | None = getattr(around, "look", None)
        explained = {reason.rule for reason in self.reasons if reason.text.startswith(_ABOUT_PATHS)}
        self.script = assessment.action.script if isinstance(assessment.action, RunScript) else ""
        self.told: set[str] = set()  # commands of which the worst is said
        self.moved: set[Effect] = set()
        self.ruled = [
            (reason, found[1], found[2], reason.rule in explained)
            for reason in self.reasons
            if (found := _RULED.fullmatch(reason.text))
        ]

    def parts(self) -> Iterator[str]:
        yield from (reason.text for reason in self.reasons if reason.tier is Tier.DENIED)
        yield from self._secrets()
        yield from self._uncertain()
        whole, told = self._irreversible()
        yield from told
        yield from self._fetched()
        yield from self._moves(whole)
        yield from self._paths(EffectKind.DELETES, "deletes", whole)
        yield from self._paths(EffectKind.WRITES, "changes", whole)
        yield from self._ruled(Tier.WRITE_OUTSIDE)
        yield from self._ruled(Tier.WRITE)
        yield from self._hosts()
        yield from self._code()
        yield from self._reads()
        yield from self._others()

    def _secrets(self) -> Iterator[str]:
        told = list(_secrets_told(self.effects, self.around))
        yield from told
        if not told:
            yield from (reason.text for reason in self.reasons if reason.tier is Tier.SECRET)

    def _uncertain(self) -> Iterator[str]:
        unknown = [reason.text for reason in self.reasons if reason.tier is Tier.UNKNOWN]
        known = [text for text in unknown if text.startswith(_ABOUT_PATHS)]
        yield from known
        rest = [text for text in unknown if text not in known]
        if rest:
            more = f", and {len(rest) - 1} more like it" if len(rest) > 1 else ""
            yield f"cannot be read with certainty: {rest[0]}{more}"

    def _irreversible(self) -> tuple[bool, list[str]]:
        """What cannot be undone, and whether that is everything in the project."""
        told, whole = [], False
        secret = [near(effect.target, self.around) for effect in self.effects if effect.scope is Scope.SECRET]
        for reason in self.reasons:
            if reason.tier is not Tier.DANGEROUS:
                continue
            found = _RULED.fullmatch(reason.text)
            if reason.text in ("deletes everything in the workspace", "changes every file in the workspace"):
                whole = True
                told.append(reason.text)
            elif found is not None:
                told.append(_dangerous(found[1], found[2]))
                self.told.add(found[1].split(" -")[0])
            elif not any(_about(reason.text, name) for name in secret):
                told.append(_kindly(reason.text))
        return whole, told

    def _moves(self, whole: bool) -> Iterator[str]:
        """What is renamed rather than deleted, and where it goes."""
        movers = {reason.rule for reason, _, why, _ in self.ruled if why.startswith("moves")}
        texts = [reason.text for reason in self.reasons if reason.rule in movers]
        if not movers or whole:
            return
        found: dict[EffectKind, list[Effect]] = {EffectKind.DELETES: [], EffectKind.WRITES: []}
        for effect in self.effects:
            begin = f"{effect.kind.value} {near(effect.target, self.around)}"
            if effect.exact and effect.kind in found and any(_about(text, begin) for text in texts):
                found[effect.kind].append(effect)
        gone, made = found[EffectKind.DELETES], found[EffectKind.WRITES]
        if gone and len(made) == 1:
            self.moved = {*gone, *made}
            names = listed([near(effect.target, self.around) for effect in gone])
            where = ", outside the workspace" if any(one.scope in _ELSEWHERE for one in (*gone, *made)) else ""
            yield f"moves {names} to {near(made[0].target, self.around)}{where}"

    def _paths(self, kind: EffectKind, verb: str, whole: bool) -> Iterator[str]:
        effects = [effect for effect in self.effects if effect.kind is kind and effect.scope is not Scope.SECRET]
        spelled = [reason.text for reason in self.reasons if reason.tier is Tier.DANGEROUS]
        effects = [
            effect
            for effect in effects
            if effect.target.startswith("/")
            and effect not in self.moved
            and not (whole and effect.target == self.around.workspace)
            and not any(_about(text, near(effect.target, self.around)) for text in spelled)
        ]
        if kind is EffectKind.WRITES and self._vague():
            effects = [item for item in effects if item.exact or item.target != self.around.workspace]
        if any(effect.kind is EffectKind.CONNECTS for effect in self.effects):
            # What Git keeps of its talks with a remote: the words for those say it.
            effects = [item for item in effects if item.target != f"{self.around.workspace}/.git"]
        for outside in (True, False):
            group = [effect for effect in effects if (effect.scope in _ELSEWHERE) is outside]
            yield from self._group(group, kind, verb, outside=outside)

    def _group(self, effects: list[Effect], kind: EffectKind, verb: str, *, outside: bool) -> Iterator[str]:
        where = ", outside the workspace" if outside else ""
        exact = [effect for effect in effects if effect.exact]
        fresh = [effect for effect in exact if kind is EffectKind.WRITES and self._kind(effect) is Kind.MISSING]
        made = frozenset(fresh)
        for group, word in ((fresh, "makes"), ([effect for effect in exact if effect not in made], verb)):
            names = list(dict.fromkeys(near(effect.target, self.around) for effect in group))
            folders = {near(effect.target, self.around) for effect in group if self._kind(effect) is Kind.FOLDER}
            also = ""
            if kind is EffectKind.DELETES and folders:
                also = " and what is in it" if len(names) == 1 else ", with all that is in them"
                names = [_folder(name) if name in folders else name for name in names]
            if names:
                yield f"{word} {_counted(names, bool(folders), outside)}{also}{where}"
        bounds = dict.fromkeys(effect.target for effect in effects if not effect.exact)
        if bounds:
            yield f"{verb} files in {listed([_folder(near(path, self.around)) for path in bounds])}{where}"

    def _kind(self, effect: Effect) -> Kind | None:
        return self._look(effect.target).kind if self._look is not None else None

    def _vague(self) -> bool:
        """Whether "files in the workspace" is told better by a rule's own words, since no path was named."""
        if any(reason.text.startswith("writes files in the workspace") for reason in self.reasons):
            return False
        return any(not explained for reason, _, _, explained in self.ruled if reason.tier is not Tier.READ) or any(
            reason.tier is Tier.DANGEROUS for reason in self.reasons
        )

    def _ruled(self, tier: Tier) -> Iterator[str]:
        more = [
            label for reason, label, _, _ in self.ruled if reason.tier > Tier.READ
        ]  # a read tells nothing of a change
        above = {label[:at] for label in more for at, char in enumerate(label) if char == " "}
        for reason, label, why, explained in self.ruled:
            if reason.tier is tier and not explained and label not in above and label.split(" -")[0] not in self.told:
                yield _with(LOSSES.get(label, _settled(label, why)), label)

    def _hosts(self) -> Iterator[str]:
        hosts = [effect.target for effect in self.effects if effect.kind is EffectKind.CONNECTS]
        known = list(dict.fromkeys(host for host in hosts if host))
        theirs = {
            effect.target
            for effect in self.effects
            if effect.kind is EffectKind.CONNECTS and effect.scope is Scope.WORKSPACE
        }
        if known:
            self.told.update(
                label for reason, label, why, _ in self.ruled if reason.tier is Tier.NETWORK and _only_talks(why)
            )
            said = [host for host in known if host not in theirs]
            yield from [f"talks to {listed(said)}"] if said else ()
            led = [host for host in known if host in theirs]
            yield from [f"talks to {listed(led)}, as the repository's settings say"] if led else ()
            reading = [(label, why) for reason, label, why, _ in self.ruled if reason.tier is Tier.READ]
            yield from (_with(why, label) for label, why in reading if "another machine" in why)
        yield from self._ruled(Tier.NETWORK)
        if not any(reason.tier is Tier.NETWORK for reason, _, _, _ in self.ruled) and hosts and not known:
            yield "talks to a host that is known only when it runs"

    def _code(self) -> Iterator[str]:
        own, unchecked = [], []
        for reason, label, why, _ in self.ruled:
            editor = re.fullmatch(r"is (an? .+)", why)
            if reason.tier is not Tier.EXECUTE or label in self.told:
                continue
            if editor:
                yield f"starts {label}, {editor[1]}"
            elif why.startswith(("`", "the ", "a ")):
                yield f"starts other programs from within {label}"
            elif not why.startswith(("runs", "builds", "may run")):
                yield _with(why, label)
            elif _INTERPRETER.fullmatch(label.split()[0]):
                unchecked.append(self._typed(reason, label))
            else:
                own.append(self._typed(reason, label))
        programs = [
            near(effect.target, self.around)
            for effect in self.effects
            if effect.kind is EffectKind.RUNS and effect.target.startswith("/")
        ]
        if programs:
            yield f"runs the program {listed(programs)}"
        if own:
            yield f"runs code from this repository ({listed(_longest(own))})"
        if unchecked:
            yield f"runs code that nobody has checked ({listed(_longest(unchecked))})"

    def _fetched(self) -> Iterator[str]:
        """Code that comes from a network: what it is fetched by needs no other word."""
        labels = [
            (reason, label)
            for reason, label, why, _ in self.ruled
            if reason.tier is Tier.EXECUTE and ("fetch" in why or "download" in why)
        ]
        self.told.update(label for _, label in labels)
        if labels:
            yield f"runs code it downloads first ({listed([self._typed(*one) for one in labels])})"

    def _typed(self, reason: Reason, label: str) -> str:
        """The command as it was typed, when that is short."""
        found = self.script[reason.span.start : reason.span.end] if reason.span else ""
        known = found.startswith(label.split()[0]) and len(found) <= _MOST_TYPED and "\n" not in found
        return found if known else label

    def _reads(self) -> Iterator[str]:
        effects = [
            effect
            for effect in self.effects
            if effect.kind is EffectKind.READS and effect.scope is Scope.OUTSIDE and effect.target.startswith("/")
        ]
        if effects:
            names = [near(item.target, self.around) if item.exact else _below(item, self.around) for item in effects]
            yield f"reads {listed(names)}, outside the workspace"

    def _others(self) -> Iterator[str]:
        for tier in (Tier.MCP_EXTERNAL, Tier.AGENT_SPAWN):
            yield from (reason.text for reason in self.reasons if reason.tier is tier)


def _secrets_told(effects: Iterable[Effect], around: Around) -> Iterator[str]:
    """What is done to secrets, and what they are: things of one kind together."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind, verb in _VERBS.items():
        for effect in effects:
            if effect.scope is Scope.SECRET and effect.kind is kind:
                found.setdefault((verb, secret_kind(effect.target)), []).append(_shown(effect, around))
    verbs: dict[tuple[str, str], list[str]] = {}
    for (verb, what), names in found.items():
        each = "each " if len(dict.fromkeys(names)) > 1 and what.startswith("a") else ""
        verbs.setdefault((listed(names), each + what), []).append(verb)
    yield from (f"{joined(done)} {names}, {what}" for (names, what), done in verbs.items())


def _dangerous(label: str, why: str) -> str:
    if why.startswith("throws away all changes to `.`"):
        why = "throws away uncommitted changes"
    if "overwrites or deletes a branch" in why:
        return f"overwrites or deletes a branch on the server ({label})"
    if "just downloaded" in why:
        return f"runs code it downloads first ({label})"
    if "rights of the administrator" in why:
        return f"needs administrator rights ({label})"
    if why.startswith("cannot be undone"):
        why = "does something that cannot be undone, or goes around a protection"
    return _with(LOSSES.get(label, why), label)


def _only_talks(why: str) -> bool:
    """Whether naming the host says as much."""
    return "another machine" not in why and not why.startswith(("runs", "copies", "sends"))


def _settled(label: str, why: str) -> str:
    why = why.removesuffix(" when used like this")
    return "changes the repository" if label.startswith("git ") and why == "changes files" else why


def _about(text: str, name: str) -> bool:
    """Whether a reason speaks of exactly that path: `writes a.txt`, not `writes a.txt.old`."""
    found = f" {text} ".find(f" {name}")
    after = f" {text} "[found + len(name) + 1 :]
    return found >= 0 and (after == " " or after.startswith((",", " in the ")))


def _kindly(text: str) -> str:
    return text.replace("writes ", "changes ", 1) if text.startswith("writes ") else text


def _with(why: str, label: str) -> str:
    return f"{why} ({label})"


def _longest(labels: list[str]) -> list[str]:
    """Without the labels that another one says more exactly: `rg`, beside `rg --pre`."""
    return [one for one in dict.fromkeys(labels) if not any(other.startswith(f"{one} ") for other in labels)]


def _shown(effect: Effect, around: Around) -> str:
    shown = near(effect.target, around) if effect.target.startswith("/") else plain(effect.target)
    return shown if effect.exact else f"files in {_folder(shown)}"


def _below(effect: Effect, around: Around) -> str:
    return f"files in {_folder(near(effect.target, around))}"


def _folder(shown: str) -> str:
    if shown in ("the workspace", "~"):
        return shown if shown != "~" else "your home folder"
    return shown if shown.endswith("/") else f"{shown}/"


def _counted(names: list[str], folders: bool, outside: bool) -> str:
    """`a`, `2 files in the workspace: a and b`, `5 files in src/`, or `5 files: a, b, c and 2 more`."""
    if len(names) == 1:
        return names[0]
    if folders:
        return listed(names)
    tops = {name.rpartition("/")[0] for name in names}
    if len(names) > MOST_NAMED and len(tops) == 1 and "" not in tops:
        return f"{len(names)} files in {tops.pop()}/"
    return f"{len(names)} files{'' if outside else ' in the workspace'}: {listed(names)}"
