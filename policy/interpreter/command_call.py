"""One command that is being judged: its rule, its words, and the findings about it."""

from typing import TYPE_CHECKING, Protocol

from policy.interpreter.findings import Findings
from policy.interpreter.shell_state import CommandResult, ExecutionFrame, ExitStates, ExpandedCommand, State
from policy.model.abstract_word import AbstractWord, SourceSpan, literal, tokens
from policy.model.assessment import Consequence, EffectKind, Reason, Scope
from policy.model.facts import Facts
from policy.model.frozen import dataclass, field, replace
from policy.model.tier import Tier
from policy.rules.rule import CommandRule, Flag, Role

if TYPE_CHECKING:
    from policy.interpreter.shell_interpreter import ShellInterpreter

# Text and consequence of a use that a rule does not describe, by the tier that the rule gives such a use.
UNDESCRIBED_USES = {
    Tier.WRITE: ("changes files", Consequence.CHANGES_FILES),
    Tier.EXECUTE: ("may run another program", Consequence.RUNS_CODE),
    Tier.NETWORK: ("may connect to a network", None),
    Tier.DANGEROUS: ("changes settings or the system", None),
}


class CommandInterpreter(Protocol):
    """The interface of the interpreter for a command. `policy.interpreter.interpreter.Interpreter` is the one
    implementation, which imports this module.
    """

    facts: Facts
    findings: Findings

    @property
    def shell(self) -> "ShellInterpreter": ...

    def simple(self, command: ExpandedCommand) -> CommandResult: ...


@dataclass(slots=True)
class ParsedOptions:
    """Options and operands of one command. `trouble` is the reason why they could not be separated, and `where` the
    word that is the cause. `bounded` is as in Reason, and `unlisted` true if the cause is a flag that the rule does not
    list.
    """

    flags: list[tuple[Flag, AbstractWord | None]] = field(default_factory=list)
    operands: list[AbstractWord] = field(default_factory=list)
    trouble: str = ""
    where: AbstractWord | None = None
    bounded: bool = False
    unlisted: bool = False


@dataclass(slots=True)
class Call:
    """One command that is about to be judged.

    Attributes:
        label: the command as a user names it (`git log`).
        words: the words after the name.
        state: the state of the shell before the command.
        frame: the input of the command and the place of its text.
        hosts: number of hosts that were found so far.
        port: the port to which a bare host name is connected.
        local: all connections of the command stay on the loopback of the sandbox, so it needs no network.
        quiet: the command only prints a text about itself, so its rule does not apply.
        offline: True if a flag before the subcommand keeps the command from the network.
        deferrable: True if the command may start without network (see `Reason.deferrable`).
        after: the states after the command, if they differ from `state`.
        prints: a bound on the text that the command prints, if one is known.
        lists: the words that the command prints, with a NUL after each, if they are known.
        says: texts that the command is known to print.
        output: the exact text that the command prints, if it is certain.
        flags: the values of the flags that were given.
        reader: the program that reads the text which the command runs (`sh`); empty if that is the command itself.
        doubted: True if it is not certain what the command does, so nothing is known about what it prints.
    """

    interpreter: CommandInterpreter
    rule: CommandRule
    label: str
    words: list[AbstractWord]
    state: State
    span: SourceSpan | None
    frame: ExecutionFrame
    hosts: int = 0
    port: str = ""
    local: bool = False
    quiet: bool = False
    offline: bool = False
    deferrable: bool = False
    after: ExitStates | None = None
    prints: AbstractWord | None = None
    lists: tuple[AbstractWord, ...] = ()
    says: tuple[str, ...] = ()
    output: str | None = None
    flags: dict[str, AbstractWord | None] = field(default_factory=dict)
    reader: str = ""
    doubted: bool = False

    @property
    def facts(self) -> Facts:
        return self.interpreter.facts

    @property
    def findings(self) -> Findings:
        return self.interpreter.findings

    @property
    def shell(self) -> "ShellInterpreter":
        return self.interpreter.shell

    def parse(self) -> ParsedOptions:
        """Separate the flags of the command from its operands."""
        return parse_options(self.rule, self.label, self.words)

    def _span(self, word: AbstractWord | None) -> SourceSpan | None:
        return (word.span if word is not None else None) or self.span

    def add_reason(self, tier: Tier, text: str, word: AbstractWord | None = None) -> None:
        self.findings.add_reason(tier, text, self.rule.ref, self._span(word))

    def add_fact(
        self,
        tier: Tier,
        predicate: str,
        word: AbstractWord | None = None,
        *,
        flag: str = "",
        consequence: Consequence | None = None,
        program: str = "",
    ) -> None:
        """Add a fact about the command, the command with `flag`, or about `program`, as a reason of `tier`."""
        label = program or (f"{self.label} {flag}" if flag else self.label)
        self.findings.add_fact(tier, label, predicate, self.rule.ref, self._span(word), consequence)

    def add_rule_fact(self, tier: Tier) -> None:
        """Add the text of the rule about the command as a reason of `tier`."""
        self.add_sentence(tier, f"`{self.label}` {self.rule.why}", self.rule.why, None, self.rule.consequence)

    def add_undescribed_use(self, tier: Tier, word: AbstractWord | None = None) -> None:
        """Add a use that the rule does not describe as a reason of `tier`."""
        predicate, consequence = UNDESCRIBED_USES.get(tier, (self.rule.why, self.rule.consequence))
        whole = f"{predicate} in this form"
        short = whole if tier is Tier.DANGEROUS else predicate  # for the summary
        self.add_sentence(tier, f"`{self.label}` {whole}", short, word, consequence)

    def add_sentence(
        self, tier: Tier, text: str, predicate: str, word: AbstractWord | None, consequence: Consequence | None
    ) -> None:
        """Add a fact about the command with a text of its own; `predicate` is the short form for the summary."""
        span, command = self._span(word), self.label
        deferrable = self.deferrable and tier is Tier.NETWORK
        reason = Reason(tier, text, self.rule.ref, span, None, None, consequence, command, predicate, deferrable)
        self.findings.add(reason)

    def runs(
        self,
        predicate: str,
        word: AbstractWord | None = None,
        *,
        flag: str = "",
        consequence: Consequence | None = Consequence.RUNS_CODE,
        program: str = "",
    ) -> None:
        """Report code that is not read beforehand, as a fact about the command, or `program` that it may run."""
        self.findings.add_effect(EffectKind.RUNS, self.label)
        self.add_fact(Tier.EXECUTE, predicate, word, flag=flag, consequence=consequence, program=program)

    def note_download(self, from_network: bool) -> None:
        """Report that the command runs its words or its input, if they come from a network."""
        if from_network:
            text = "runs what was just downloaded"
            self.add_fact(Tier.DANGEROUS, text, consequence=Consequence.RUNS_DOWNLOADED)

    def unknown(self, text: str, word: AbstractWord | None = None, consequence: Consequence | None = None) -> None:
        self.findings.unknown(text, self.rule.ref, self._span(word), consequence)
        if word is not None:
            self.suspect(word)

    def unknown_words(self, text: str, word: AbstractWord | None) -> None:
        """Report words whose roles are unknown because of `word`, and the secrets that any of them may name."""
        self.unknown(text, word)
        for each in self.words:
            self.suspect(each)

    def bounded(self, text: str, word: AbstractWord | None = None) -> None:
        """Report a use that cannot be judged, but does no more than code that is not read: the sandbox bounds both."""
        self.doubted = True
        self.findings.bounded(text, self.rule.ref, self._span(word))

    def suspect(self, word: AbstractWord) -> None:
        """Report the secrets that a word of unknown role may name, if its text is uncertain."""
        if word.content:
            word = replace(word, texts=(), hints=(*word.hints, *tokens(word.content)))
        if not word.texts:
            self.findings.suspect(Role.READ, word, self.state.cwds, self.rule.ref, self._span(word))

    def connects(self, host: str, word: AbstractWord | None = None, scope: Scope = Scope.NONE) -> None:
        """Report a connection to `host` (as from `policy.model.host_rule.endpoint`), which settings of `scope`
        name.
        """
        self.findings.connects(host, self.rule.ref, self._span(word), scope, exact=not self.rule.unreached)

    def connects_by_default(self, host: str, scope: Scope) -> None:
        """Report a connection to `host`, which no word of the command names.

        A host of the user's own settings is not deferrable: a tool in the sandbox learns of it only if its terms open
        it, and would ask another host for the packages.
        """
        deferrable = self.deferrable and scope is not Scope.OUTSIDE
        exact = not self.rule.unreached
        self.findings.connects(host, self.rule.ref, self.span, scope, exact=exact, deferrable=deferrable and exact)

    def uses_loopback(self, host: str = "", word: AbstractWord | None = None) -> None:
        """Report a connection to `host`, or a server, on the loopback of the sandbox."""
        self.findings.uses_loopback(host, self.rule.ref, self._span(word))

    def access_path(self, role: Role, word: AbstractWord) -> None:
        """Record the effects of `role` on the path that `word` names."""
        if word.depends_on_substitution and role in (Role.DELETE, Role.MOVE) and (word.tail or word.may_split):
            # `rm -rf "$d"/*` becomes `rm -rf /*` if the command that should print `$d` fails.
            text = "deletes another path when the command that names it fails"
            self.unknown(text, word, Consequence.DELETES_PATH)
        self.findings.access_path(role, word, self.state.cwds, self.rule.ref, self._span(word))

    def record_name(self) -> None:
        """Record which words are the program and its subcommands, for the rules of users."""
        name, also = self.label.split(), tuple(self.rule.name.split())
        step = self.findings.step
        step.named, step.name, step.also = (*map(literal, name), *self.words), len(name), also

    def add_writes(self, tier: Tier) -> None:
        """Add the writes of `tier` that no operand names, because the sandbox grants exactly the effects."""
        place = self.rule.changes or ("." if tier is Tier.WRITE and not self.rule.operands.writes else "")
        if place and tier is not Tier.READ:
            workspace = self.facts.workspace
            path = workspace if place == "." else f"{workspace}/{place}"
            self.findings.add_effect(EffectKind.WRITES, path, Scope.WORKSPACE, place != ".")

    def run(self, words: list[AbstractWord], state: State | None = None) -> ExitStates:
        """Judge the command `words` in place of this one, or in `state`, and return the states after it."""
        frame = self.frame
        if frame.stdin_script is not None and self.label not in _PASS_INPUT:
            frame = replace(frame, stdin_shared=True)
        command = ExpandedCommand(words, state or self.state, self.span, frame)
        return self.interpreter.simple(command).states

    def accept(self, state: State) -> None:
        """Judge this builtin as a read that leaves the shell in `state`."""
        self.add_rule_fact(Tier.READ)
        self.after = ExitStates.same(state)

    def run_script(self, script: str, state: State, span: SourceSpan | None) -> None:
        """Judge bash text that this command runs in a shell of its own."""
        reader = self.reader or self.label
        self.shell.run_script_text(script, state, self.frame, span or self.span, self.rule.ref, reader)

    def find_secrets(self, text: str) -> None:
        """Report the secrets that a text of an unknown language names literally."""
        from policy.interpreter.unread_script import find_secrets  # only where a script is not understood

        find_secrets(self.findings, text, self.state, self.rule.ref, self.span)


STANDARD_INPUT = frozenset(["/dev/stdin", "/proc/self/fd/0"])  # `/dev/fd/0` is also the text of any `<(..)`

# Programs that leave their whole input to the one command that they run.
_PASS_INPUT = frozenset(
    ["env", "command", "builtin", "exec", "timeout", "nice", "ionice", "nohup", "setsid", "stdbuf", "time"]
)


def parse_options(rule: CommandRule, label: str, words: list[AbstractWord]) -> ParsedOptions:
    """Separate flags and operands as getopt does. Stop at the first operand if the rest is another command.

    `label` is the command as a user names it, for the text of a trouble.
    """
    return _Parser(rule, label, words).run()


class _Parser:
    """The parser of the options of one command."""

    def __init__(self, rule: CommandRule, label: str, words: list[AbstractWord]) -> None:
        self.rule, self.label, self.words = rule, label, words
        self.position = 0  # of the next word
        self.shape = ParsedOptions()

    def fail(self, trouble: str, where: AbstractWord) -> None:
        self.shape.trouble, self.shape.where = trouble, where

    def doubt(self, trouble: str, where: AbstractWord) -> None:
        """Fail because of a word that is known only at run time."""
        self.fail(trouble, where)
        self.shape.bounded = self.rule.bounded

    def unlisted(self, trouble: str, where: AbstractWord) -> None:
        """Fail because of a flag, or a form of a flag, that the rule does not list."""
        self.fail(trouble, where)
        self.shape.unlisted = self.shape.bounded = self.rule.bounds_flags

    def run(self) -> ParsedOptions:
        rule, shape = self.rule, self.shape
        stops = rule.operands.runs or bool(rule.subs)
        while self.position < len(self.words) and not shape.trouble:
            word = self.words[self.position]
            self.position += 1
            text = word.text
            if text == "--":
                shape.operands += self.words[self.position :]
                break
            if text is None and self.begun(word):
                continue
            if text is None or text[:1] != "-" or (text == "-" and "-" not in rule.flags):
                signed = text is not None and text[:1] in ("+", "@")
                if not (word.plain or rule.anywhere or (rule.single and not word.may_split)):
                    self.doubt(f"a word known only at run time may become a flag of `{self.label}`", word)
                elif text and signed and (known := rule.flags.get(text) or rule.flags.get(text[:1])):
                    shape.flags.append((known, None))
                elif stops:
                    shape.operands += self.words[self.position - 1 :]
                    break
                else:
                    shape.operands.append(word)
                continue
            # `-chdir=folder`, where flags are whole words with one dash; `-c=x` is a short flag with the value `=x`.
            name = text.partition("=")[0]
            whole = len(name) > len("-c") and name in rule.flags
            if text in rule.flags or whole or rule.words or text.startswith("--"):
                self.long(text, word)
            else:
                self.cluster(text, word)
        return shape

    def begun(self, word: AbstractWord) -> bool:
        """Read one flag with a value of which only the beginning is known: `--author="$X"`."""
        name, equals, value = word.head.partition("=")
        flag = self.rule.flags.get(name)
        if not equals or flag is None or flag.role is None or word.may_split or name[:2] != "--":
            return False
        self.shape.flags.append((flag, replace(word, head=value, pattern="", shape="", heads=())))
        return True

    def long(self, text: str, word: AbstractWord) -> None:
        """Read one long flag by its exact name."""
        name, equals, value = text.partition("=")
        flag = self.rule.flags.get(name)
        if flag is None:
            self.unlisted(f"`{name}` is not a known flag of `{self.label}`", word)
        elif equals and flag.role is None:
            self.unlisted(f"`{name}` takes no value", word)
        elif equals:
            self.shape.flags.append((flag, literal(value, word.span)))
        elif flag.role is None or flag.optional:
            self.shape.flags.append((flag, None))
        else:
            self.value(flag)

    def cluster(self, text: str, word: AbstractWord) -> None:
        """Read a cluster of one-letter flags, which a letter with a value ends."""
        if "-#" in self.rule.flags and text[1:].isdigit():
            self.shape.flags.append((self.rule.flags["-#"], None))
            return
        for index in range(1, len(text)):
            flag = self.rule.flags.get(f"-{text[index]}")
            attached = text[index + 1 :]
            if flag is not None and flag.role is None:
                self.shape.flags.append((flag, None))
                continue
            if flag is None:
                self.unlisted(f"`-{text[index]}` is not a known flag of `{self.label}`", word)
            elif attached or flag.optional:
                self.shape.flags.append((flag, literal(attached, word.span) if attached else None))
            else:
                self.value(flag)
            return

    def value(self, flag: Flag) -> None:
        """Read the next word, or two, as the value of a flag. A word that may become several words could contain
        flags.
        """
        roles = [flag.role] if flag.second is None else [flag.role, flag.second]
        taken = self.words[self.position : self.position + len(roles)]
        for role, value in zip(roles, taken, strict=False):
            if value.may_split and not self.rule.anywhere:
                self.doubt(f"the value of `{flag.name}` may become further words of `{self.label}`", value)
            self.shape.flags.append((replace(flag, role=role), value))
        if not taken:
            self.shape.flags.append((flag, None))
        self.position += len(taken)
