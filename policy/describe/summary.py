"""The summary of an action in one line for a user who is not an expert: worst first, counted and grouped.

The summary is chosen by tiers, effects and consequences. The text of a reason is quoted and never searched.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from policy.describe.phrases import MOST_NAMED, Around, joined, named, near, plain, powers, secret_kind, short_list
from policy.model.abstract_word import SourceSpan
from policy.model.action import CallServerTool, RunScript, SignalProcess, SignGit, WriteProcess
from policy.model.assessment import PATH_CONSEQUENCES, Assessment, Consequence, Effect, EffectKind, Reason, Scope
from policy.model.facts import Kind, PathFact
from policy.model.host_words import names_private_network
from policy.model.tier import Tier
from policy.model.verdict import UNNAMED, Terms

_MOST_PARTS = 5  # parts of a summary before "has further effects"
_LONGEST = 160
_MOST_TYPED = 40

_VERBS = {EffectKind.DELETES: "deletes", EffectKind.WRITES: "changes", EffectKind.READS: "reads"}
_WHOLE = (Consequence.DELETES_WORKSPACE, Consequence.CHANGES_WORKSPACE)
# A reason with one of these names the path that it is about.
_NAMING = PATH_CONSEQUENCES - {Consequence.CHANGES_ROOT}
# Over a network these do more than the name of the host says.
_BEYOND_TALKING = (Consequence.TRANSFERS, Consequence.RUNS_CODE, Consequence.RUNS_DOWNLOADED)
_LOOPBACK = "uses the loopback of the sandbox"
_ELSEWHERE = (Scope.OUTSIDE, Scope.SYSTEM)
_DANGERS: dict[Consequence | None, str] = {
    Consequence.OVERWRITES_BRANCH: "overwrites or deletes a branch on the server",
    Consequence.RUNS_DOWNLOADED: "downloads code and runs it",
    Consequence.NEEDS_ADMINISTRATOR: "needs administrator rights",
    Consequence.IRREVERSIBLE: "does something that cannot be undone, or goes around a protection",
}

# Commands that run the tests of a project, as typed.
_TESTS = re.compile(
    r"(?:pytest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest)(?: |\Z)|python[0-9.]* -m (?:pytest|unittest)(?: |\Z)"
    r"|(?:npm|pnpm|yarn|bun|cargo|go|make|mvn|gradle|deno|dotnet|mix|swift|zig) test(?: |\Z)"
)

# Programs that run code from their arguments or from any file. Every other program with RUNS_CODE runs code of the
# repository.
INTERPRETER = re.compile(
    r"(?:python|pypy|node|nodejs|deno|bun|perl|ruby|php|lua|bash|sh|dash|zsh|ksh|fish|[gmn]?awk|sed|R|Rscript|julia"
    r"|groovy|java|ghci|irb|tclsh|osascript|pwsh|sqlite3)[0-9.]*\Z"
)


def summarize(assessment: Assessment, around: Around) -> str:
    """Return the end of a sentence that starts with the action: one line without control characters."""
    parts = list(dict.fromkeys(plain(part, _LONGEST) for part in _Summary(assessment, around).parts()))
    if len(parts) > _MOST_PARTS:
        parts = [*parts[:_MOST_PARTS], "has further effects"]
    if any(char in part for part in parts for char in ",:;"):
        return "; ".join(parts)
    return joined(parts) if parts else "only reads the workspace and the system"


def question(assessment: Assessment, terms: Terms, around: Around) -> str:
    """Return one line: the summary of the action, and all rights that an approval would grant."""
    action = assessment.action
    if isinstance(action, SignGit):
        rights = "An approval gives it the signature of this text, and nothing more"
        return f"{named(action, around)} signs a {action.what} with your key {plain(action.key)}. {rights}. Allow it?"
    summary = summarize(assessment, around)
    mark = ": " if summary.startswith("`") else " "
    rights = "; ".join((powers(terms, around, assessment.action), *caveats(assessment, terms)))
    return f"{named(assessment.action, around)}{mark}{summary}. {rights}. Allow it?"


def caveats(assessment: Assessment, terms: Terms) -> tuple[str, ...]:
    """Return the rights that the action needs and an approval would not grant."""
    missing = []
    if UNNAMED in terms.hosts:
        named_then = "the connection is then blocked, and one more approval, `--host` or a rule allows its host"
        missing.append(f"the host is known only at run time: {named_then}")
    elif Tier.NETWORK in assessment.tiers and not terms.hosts and not isinstance(assessment.action, WriteProcess):
        missing.append("connections will fail, because no host is known (name the host with `--host` or in a rule)")
    inner = [host for host in terms.hosts if names_private_network(host)]
    if inner:
        where = "which is this machine or a private network"
        missing.append(f"{short_list(inner)}, {where}, stays blocked until `--host` or a rule has `{inner[0]} private`")
    return tuple(missing)


def secrets_read(assessment: Assessment, around: Around) -> str | None:
    """Return the part of the summary about secrets, or None when no effect names one."""
    phrases = list(_secret_phrases(assessment.effects, around))
    return joined(phrases) if phrases else None


class _Summary:
    """The parts of one summary. A part that a more specific phrase covers is left out."""

    def __init__(self, assessment: Assessment, around: Around) -> None:
        self.around = around
        self.reasons = assessment.reasons
        self.effects = assessment.effects
        self._look: Callable[[str], PathFact] | None = getattr(around, "look", None)
        explained = {reason.rule for reason in self.reasons if reason.consequence in PATH_CONSEQUENCES}
        self.action = assessment.action
        self.script = assessment.action.script if isinstance(assessment.action, RunScript) else ""
        self.covered: set[str] = set()  # commands with a more specific phrase
        self.moved: set[Effect] = set()
        # Facts about commands, each with True if another reason of the same rule names a path.
        self.facts = [(reason, reason.rule in explained) for reason in self.reasons if reason.command]

    def parts(self) -> Iterator[str]:
        yield from (reason.text for reason in self.reasons if reason.tier is Tier.DENIED)
        secrets = list(_secret_phrases(self.effects, self.around))
        yield from secrets or [reason.text for reason in self.reasons if reason.tier is Tier.SECRET]
        if isinstance(self.action, WriteProcess | SignalProcess):
            yield self._process(self.action)
            return
        yield from self._uncertain()
        whole, phrases = self._irreversible()
        yield from phrases
        yield from self._fetched()
        yield from self._moves(whole)
        yield from self._paths(EffectKind.DELETES, whole)
        yield from self._paths(EffectKind.WRITES, whole)
        yield from self._quoted(Tier.WRITE_OUTSIDE)
        yield from self._quoted(Tier.WRITE)
        yield from self._hosts()
        yield from self._code()
        yield from self._reads()
        if isinstance(self.action, CallServerTool):
            yield from (reason.text for reason in self.reasons if reason.tier in (Tier.WRITE, Tier.NETWORK))
        for tier in (Tier.MCP_EXTERNAL, Tier.AGENT_SPAWN):
            yield from (reason.text for reason in self.reasons if reason.tier is tier)

    def _process(self, action: WriteProcess | SignalProcess) -> str:
        command = f"`{plain(action.command, _LONGEST)}`" if action.command else "a program"
        if isinstance(action, SignalProcess):
            return f"sends a signal to {command}" + ("" if action.own else ", which the user started")
        return f"gives this text to {command}, which is running and decides what the text does"

    def _uncertain(self) -> Iterator[str]:
        unknown = [reason for reason in self.reasons if reason.uncertain]
        yield from (reason.text for reason in unknown if reason.consequence in PATH_CONSEQUENCES)
        rest = [reason.text for reason in unknown if reason.consequence not in PATH_CONSEQUENCES]
        if rest:
            more = f", and {len(rest) - 1} more such reasons" if len(rest) > 1 else ""
            yield f"cannot be read with certainty: {rest[0]}{more}"

    def _irreversible(self) -> tuple[bool, list[str]]:
        """Return True if everything in the workspace changes, and the phrases for everything that cannot be undone."""
        phrases, whole = [], False
        for reason in self.reasons:
            if reason.tier is not Tier.DANGEROUS:
                continue
            whole = whole or reason.consequence in _WHOLE
            if reason.command:
                phrases.append(f"{_DANGERS.get(reason.consequence) or reason.phrase} ({reason.command})")
                self.covered.add(reason.command.split(" -")[0])
            elif reason.about is None or reason.about.scope is not Scope.SECRET:
                phrases.append(reason.predicate or reason.text)
        return whole, phrases

    def _moves(self, whole: bool) -> Iterator[str]:
        """Yield the paths that are renamed rather than deleted, and their new place."""
        movers = {reason.rule for reason, _ in self.facts if reason.consequence is Consequence.MOVES}
        if not movers or whole:
            return
        named = {reason.about or reason.names for reason in self.reasons if reason.rule in movers}
        exact = [effect for effect in self.effects if effect.exact and effect in named]
        gone = [effect for effect in exact if effect.kind is EffectKind.DELETES]
        made = [effect for effect in exact if effect.kind is EffectKind.WRITES]
        if gone and len(made) == 1:
            self.moved = {*gone, *made}
            names = short_list([near(effect.target, self.around) for effect in gone])
            where = ", outside the workspace" if any(one.scope in _ELSEWHERE for one in (*gone, *made)) else ""
            yield f"moves {names} to {near(made[0].target, self.around)}{where}"

    def _paths(self, kind: EffectKind, whole: bool) -> Iterator[str]:
        dangerous = [reason for reason in self.reasons if reason.tier is Tier.DANGEROUS]
        spelled = {each.about.target for each in dangerous if each.about and each.consequence in _NAMING}
        effects = [
            effect
            for effect in self.effects
            if (effect.kind is kind and effect.scope is not Scope.SECRET and effect.target.startswith("/"))
            and effect not in self.moved
            and not (whole and effect.target == self.around.workspace)
            and effect.target not in spelled
        ]
        if kind is EffectKind.WRITES and self._vague():
            effects = [item for item in effects if item.exact or item.target != self.around.workspace]
        if any(effect.kind is EffectKind.CONNECTS for effect in self.effects):
            # Files that Git writes while it contacts a remote: the phrase for the connection covers them.
            effects = [item for item in effects if item.target != f"{self.around.workspace}/.git"]
        for outside in (True, False):
            group = [effect for effect in effects if (effect.scope in _ELSEWHERE) is outside]
            yield from self._group(group, kind, outside=outside)

    def _group(self, effects: list[Effect], kind: EffectKind, *, outside: bool) -> Iterator[str]:
        verb = _VERBS[kind]
        where = ", outside the workspace" if outside else ""
        exact = [effect for effect in effects if effect.exact]
        fresh = [effect for effect in exact if kind is EffectKind.WRITES and self._kind(effect) is Kind.MISSING]
        made = frozenset(fresh)
        for group, word in ((fresh, "creates"), ([effect for effect in exact if effect not in made], verb)):
            names = list(dict.fromkeys(near(effect.target, self.around) for effect in group))
            folders = {near(effect.target, self.around) for effect in group if self._kind(effect) is Kind.FOLDER}
            also = ""
            if kind is EffectKind.DELETES and folders:
                also = " and everything below it" if len(names) == 1 else ", with everything below them"
                names = [_folder(name) if name in folders else name for name in names]
            if names:
                yield f"{word} {_counted(names, bool(folders), outside)}{also}{where}"
        bounds = dict.fromkeys(effect.target for effect in effects if not effect.exact)
        if bounds:
            yield f"{verb} files in {short_list([_folder(near(path, self.around)) for path in bounds])}{where}"

    def _kind(self, effect: Effect) -> Kind | None:
        return self._look(effect.target).kind if self._look is not None else None

    def _vague(self) -> bool:
        """Return True if no path was named, so that the text of a rule is more specific than "files in the
        workspace".
        """
        if any(reason.consequence is Consequence.WRITES_FILES for reason in self.reasons):
            return False
        dangerous = any(reason.tier is Tier.DANGEROUS for reason in self.reasons)
        return dangerous or any(not explained for reason, explained in self.facts if reason.tier is not Tier.READ)

    def _quoted(self, tier: Tier) -> Iterator[str]:
        """Yield the facts of one tier in the text of their rules, unless a longer command or a path is more
        specific.
        """
        more = [reason.command for reason, _ in self.facts if reason.tier > Tier.READ]  # a read changes nothing
        above = {label[:at] for label in more for at, char in enumerate(label) if char == " "}
        for reason, explained in self.facts:
            label = reason.command
            covered = explained or label in above or label.split(" -")[0] in self.covered
            if reason.tier is tier and not covered:
                of_git = reason.consequence is Consequence.CHANGES_FILES and label.startswith("git ")
                yield f"{'changes the repository' if of_git else reason.phrase} ({label})"

    def _hosts(self) -> Iterator[str]:
        if near_ones := [one.target for one in self.effects if one.kind is EffectKind.USES_LOOPBACK]:
            named_ones = [host for host in near_ones if host]
            yield f"connects to {short_list(named_ones)}, inside the sandbox" if named_ones else _LOOPBACK
        effects = [effect for effect in self.effects if effect.kind is EffectKind.CONNECTS]
        known = list(dict.fromkeys(effect.target for effect in effects if effect.target))
        from_settings = {effect.target for effect in effects if effect.scope is Scope.WORKSPACE}
        if known:
            self.covered.update(
                reason.command
                for reason, _ in self.facts
                if reason.tier is Tier.NETWORK and reason.consequence not in _BEYOND_TALKING
            )
            direct = [host for host in known if host not in from_settings]
            yield from [f"connects to {short_list(direct)}"] if direct else ()
            others = [host for host in known if host in from_settings]
            yield from ([f"connects to {short_list(others)}, which the repository's settings name"] if others else ())
            reading = [reason for reason, _ in self.facts if reason.tier is Tier.READ]
            sent = [reason for reason in reading if reason.consequence is Consequence.TRANSFERS]
            yield from (f"{reason.predicate} ({reason.command})" for reason in sent)
        yield from self._quoted(Tier.NETWORK)
        if not any(reason.tier is Tier.NETWORK for reason, _ in self.facts) and effects and not known:
            yield "connects to a host that is known only at run time"

    def _code(self) -> Iterator[str]:
        tests: list[Reason] = []
        own: list[Reason] = []
        unchecked: list[Reason] = []
        for reason, _ in self.facts:
            label = reason.command
            if reason.tier is not Tier.EXECUTE or label in self.covered:
                continue
            match reason.consequence:
                case Consequence.STARTS_EDITOR:
                    yield f"starts {label}, an editor, which can run programs"
                case Consequence.RUNS_PROJECT_PROGRAM:
                    yield f"starts {label}, a program of the project"
                case Consequence.STARTS_PROGRAMS:
                    yield f"starts other programs from within {label}"
                case Consequence.RUNS_CODE if _TESTS.match(self._typed(reason)):
                    tests.append(reason)
                case Consequence.RUNS_CODE if INTERPRETER.fullmatch(label.split()[0]):
                    unchecked.append(reason)
                case Consequence.RUNS_CODE:
                    own.append(reason)
                case _:
                    yield f"{reason.predicate} ({label})"
        runs = [effect.target for effect in self.effects if effect.kind is EffectKind.RUNS]
        if programs := [near(path, self.around) for path in runs if path.startswith("/")]:
            yield f"runs the program {short_list(programs)}"
        said: set[SourceSpan] = set()  # `python3 -m pytest` is one command with a reason about each program
        for verb, reasons in (
            ("runs this project's tests", tests),
            ("runs code from this repository", own),
            ("runs code that is not analysed", unchecked),
        ):
            fresh = [each for each in reasons if each.span is None or each.span not in said]
            if fresh:
                yield f"{verb} ({short_list(_longest([self._typed_in(each, reasons + unchecked) for each in fresh]))})"
            said.update(each.span for each in fresh if each.span is not None)

    def _typed_in(self, reason: Reason, reasons: list[Reason]) -> str:
        """Return the longest form in which one of the reasons names the command of `reason`."""
        same = [self._typed(each) for each in reasons if each.span is not None and each.span == reason.span]
        return max((self._typed(reason), *same), key=len)

    def _fetched(self) -> Iterator[str]:
        """Yield the code that is downloaded and run. The commands that download it need no other phrase."""
        downloads = [reason for reason, _ in self.facts if reason.consequence is Consequence.RUNS_DOWNLOADED]
        downloads = [reason for reason in downloads if reason.tier is Tier.EXECUTE]
        self.covered.update(reason.command for reason in downloads)
        if downloads:
            yield f"downloads code and runs it ({short_list([self._typed(each) for each in downloads])})"

    def _typed(self, reason: Reason) -> str:
        """Return the command as it was typed if that is short, else the name of the command."""
        label = reason.command
        words = self.script[reason.span.start : reason.span.end] if reason.span else ""
        short = words.startswith(label.split()[0]) and len(words) <= _MOST_TYPED and "\n" not in words
        return words if short else label

    def _reads(self) -> Iterator[str]:
        reads = [effect for effect in self.effects if effect.kind is EffectKind.READS and effect.target.startswith("/")]
        if effects := [effect for effect in reads if effect.scope is Scope.OUTSIDE]:
            yield f"reads {short_list([_effect_name(item, self.around) for item in effects])}, outside the workspace"


def _secret_phrases(effects: Iterable[Effect], around: Around) -> Iterator[str]:
    """Yield phrases for what is done to secrets, with their kinds; secrets of one kind are grouped."""
    found: dict[tuple[str, str], list[str]] = {}
    for kind, verb in _VERBS.items():
        for effect in effects:
            if effect.scope is Scope.SECRET and effect.kind is kind:
                found.setdefault((verb, secret_kind(effect.target)), []).append(_effect_name(effect, around))
    verbs: dict[tuple[str, str], list[str]] = {}
    for (verb, what), names in found.items():
        each = "each " if len(dict.fromkeys(names)) > 1 and what.startswith("a") else ""
        verbs.setdefault((short_list(names), each + what), []).append(verb)
    yield from (f"{joined(done)} {names}, {what}" for (names, what), done in verbs.items())


def _longest(labels: list[str]) -> list[str]:
    """Return the labels without those that another label extends: `rg` is dropped beside `rg --pre`."""
    return [one for one in dict.fromkeys(labels) if not any(other.startswith(f"{one} ") for other in labels)]


def _effect_name(effect: Effect, around: Around) -> str:
    name = near(effect.target, around) if effect.target.startswith("/") else plain(effect.target)
    return name if effect.exact else f"files in {_folder(name)}"


def _folder(name: str) -> str:
    if name == "~":
        return "your home folder"
    return name if name == "the workspace" or name.endswith("/") else f"{name}/"


def _counted(names: list[str], folders: bool, outside: bool) -> str:
    """Return `a`, `2 files in the workspace: a and b`, `5 files in src/`, or `5 files: a, b, c and 2 more`."""
    if len(names) == 1:
        return names[0]
    if folders:
        return short_list(names)
    tops = {name.rpartition("/")[0] for name in names}
    if len(names) > MOST_NAMED and len(tops) == 1 and "" not in tops:
        return f"{len(names)} files in {tops.pop()}/"
    return f"{len(names)} files{'' if outside else ' in the workspace'}: {short_list(names)}"
