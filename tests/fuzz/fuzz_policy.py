"""The laws of the gate, tried on texts that nobody would write: mutated command lines, a grammar, and noise.

`tests/laws/test_laws.py` drives this module for a moment; `python tests/fuzz/fuzz_policy.py --seconds 600` drives it for long.
`--corpus FILE` (JSON lines with a `cmd`) adds real command lines to what is mutated. Exit status 1 means: a law broke;
`--seed` with the seed that is printed then makes the same texts again.
"""

import argparse
import importlib.resources
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from policy.bash.ast import Opaque
from policy.bash.crosscheck import find_disagreement
from policy.bash.parser import read
from policy.classify import classify
from policy.decide import decide, deciding_cell, open_reasons
from policy.describe.summary import summarize
from policy.model.action import Action, RunScript
from policy.model.assessment import Assessment, EffectKind, Reason, RuleKind, RuleRef, Scope
from policy.model.facts import Facts, Kind, PathFact, ShellText
from policy.model.profile import Profile
from policy.model.secret_paths import inside
from policy.model.tier import Mode, Ruling, Tier
from policy.model.verdict import Allow, Ask, Deny, Limits, Rights, Terms, Verdict
from policy.rules.rulebook import RuleBook, parse_examples
from policy.terms import Floor, terms_for
from policy.toml.profile import parse_profile
from runner.gate.explain import explain, render
from runner.gate.suggest import read_rules, suggested

WORK, HOME = "/home/me/work", "/home/me"
SLOW = 2.0  # seconds: far over the promised 50 ms, so that a busy machine breaks no law

_FOLDERS = {"/", "/usr", "/usr/bin", "/etc", "/home", HOME, WORK, f"{WORK}/src", f"{WORK}/.git", f"{HOME}/.ssh"}
_FILES = {f"{WORK}/{name}" for name in ("a.txt", "notes.txt", ".env", "run.sh", "lib", "src/main.py")}
_FILES |= {f"{HOME}/.ssh/id_rsa", f"{HOME}/letter.txt", "/etc/hostname", "/etc/fstab"}
_LINKS = {f"{WORK}/link": f"{HOME}/.ssh/id_rsa", f"{WORK}/out": HOME}

# The file of the workspace that scripts read with `. ./lib`.
_LIBRARY = 'lib_print() { cat "$1"; }\nlib_remove() { rm -rf "$@"; }\nlib_enter() { cd "$x" || return; }\nx=src\n'


def _look(path: str) -> PathFact:
    real = ""
    for part in path.split("/"):
        if part:
            real = _LINKS.get(f"{real}/{part}", f"{real}/{part}")
    real = real or "/"
    return PathFact(real, Kind.FOLDER if real in _FOLDERS else Kind.FILE if real in _FILES else Kind.MISSING)


def _shell_text(path: str) -> ShellText | None:
    return ShellText(_LIBRARY, "0" * 64) if path == f"{WORK}/lib" else None


@lru_cache(maxsize=1)
def book() -> RuleBook:
    return RuleBook(dict(_rule_files()))


@lru_cache(maxsize=1)
def profile() -> Profile:
    return parse_profile((importlib.resources.files("profiles") / "default.toml").read_text(), "default.toml")


@lru_cache(maxsize=1)
def facts() -> Facts:
    """A small disk that is the same everywhere, so that a seed is."""
    system = (*profile().system, "/etc/passwd")
    state = (f"{HOME}/.local/state/ringfence",)
    return Facts(WORK, HOME, ("/usr/bin",), system, state, _look, lambda name: None, shell_text=_shell_text)


def _rule_files() -> Iterator[tuple[str, str]]:
    for item in (importlib.resources.files("policy") / "commands").iterdir():
        if item.name.endswith(".toml"):
            yield item.name, item.read_text()


@lru_cache(maxsize=1)
def examples() -> tuple[str, ...]:
    """Every `[[example]]` of the rule files, harmless and hostile."""
    return tuple(example.run for name, text in sorted(_rule_files()) for example in parse_examples(text, name))


def judge(script: str, by: Profile | None = None) -> Assessment:
    return classify(RunScript(script, WORK), facts(), book(), by or profile())


def verdict(assessment: Assessment, mode: Mode, *, unattended: bool = False, by: Profile | None = None) -> Verdict:
    return decide(assessment, facts(), by or profile(), mode, unattended=unattended, environment=())


def strictness(found: Verdict) -> Ruling:
    return Ruling.ALLOW if isinstance(found, Allow) else Ruling.ASK if isinstance(found, Ask) else Ruling.DENY


# Laws of one answer. Each yields what is broken.


def broken(action: Action) -> Iterator[str]:
    """Every law that the answer to one action breaks."""
    before = time.perf_counter()
    assessment = classify(action, facts(), book(), profile())
    took = time.perf_counter() - before
    if took > SLOW:
        yield f"an answer that takes {took:.1f} s"
    if any("failed with an internal error" in reason.text for reason in assessment.reasons):
        yield f"the gate itself failed: {assessment.reasons[0].text}"
    script = action.script if isinstance(action, RunScript) else ""
    yield from _reasons(assessment, script)
    yield from _verdicts(assessment)
    yield from _terms(assessment)
    yield from _told(assessment)


def _reasons(assessment: Assessment, script: str) -> Iterator[str]:
    if not assessment.reasons:
        yield "a tier without a reason"
    for reason in assessment.reasons:
        span = reason.span
        if span is not None and not 0 <= span.start <= span.end <= len(script):
            yield f"a reason points beside the script: {reason.text} at {span}"
        if not reason.text.strip():
            yield "a reason without words"
    if list(assessment.tiers) != sorted(set(assessment.tiers), reverse=True):
        yield "tiers that are not worst first"


def _verdicts(assessment: Assessment) -> Iterator[str]:
    for mode in Mode:
        attended, alone = verdict(assessment, mode), verdict(assessment, mode, unattended=True)
        if isinstance(alone, Ask):
            yield f"a question where there is no user, in {mode.value}"
        if isinstance(attended, Allow) != isinstance(alone, Allow):
            yield f"being alone changes what is allowed in {mode.value}"
        if isinstance(attended, Allow | Ask) and assessment.tiers[0] >= Tier.SECRET:
            yield f"a floor that {mode.value} lifts"
        for tier in Tier:
            worse = replace(
                assessment, reasons=(*assessment.reasons, Reason(tier, "more", RuleRef(RuleKind.USER, "law", 0)))
            )
            if deciding_cell(worse, mode).ruling < deciding_cell(assessment, mode).ruling:
                yield f"one more reason ({tier.label}) makes {mode.value} laxer"


def _terms(assessment: Assessment) -> Iterator[str]:
    """Rights granted are effects claimed: no more below read-outside, and no less than what a change needs."""
    worst = assessment.tiers[0]
    terms = terms_for(assessment, facts(), profile(), (), Limits())
    if isinstance(terms, Floor):
        return
    if worst is Tier.READ and (terms.rights is not Rights.READ_ONLY or terms.write or terms.hosts or terms.read):
        yield "a read that may do more than read"
    if worst < Tier.READ_OUTSIDE and (terms.read or terms.write or terms.hosts):
        yield "a path outside or a host that no tier stands for"
    if worst >= Tier.SECRET:
        return
    for effect in assessment.effects:
        changes = effect.kind in (EffectKind.WRITES, EffectKind.DELETES)
        if changes and effect.scope is Scope.WORKSPACE and worst is Tier.READ:
            yield f"{effect.kind.value} {effect.target}, and yet only a read"
        if changes and effect.scope is Scope.WORKSPACE and terms.rights is not Rights.WORKSPACE_WRITE:
            yield f"{effect.kind.value} {effect.target} without the right to"
        if changes and effect.scope is Scope.OUTSIDE and worst < Tier.WRITE_OUTSIDE:
            yield f"{effect.kind.value} {effect.target}, outside, as {worst.label}"
        if effect.kind is EffectKind.CONNECTS and worst < Tier.NETWORK:
            yield f"connects to `{effect.target}` as {worst.label}"
        passes = (
            effect.kind is EffectKind.CONNECTS and effect.exact
        )  # what no proxy passes on gets no right, and no yes
        if passes and effect.target and effect.target not in terms.hosts:
            yield f"connects to `{effect.target}` without the right to"
    yield from _roots(terms)


def _roots(terms: Terms) -> Iterator[str]:
    for path in (*terms.read, *terms.write):
        if not path.startswith("/") or inside(HOME, path) or inside(f"{HOME}/.ssh", path):
            yield f"rights to {path}, which holds secrets"


def _told(assessment: Assessment) -> Iterator[str]:
    """Yield every flaw of the texts for users (one printable line) and of the JSON form (unchanged by a round trip)."""
    found = verdict(assessment, Mode.DEFAULT)
    line = found.question if isinstance(found, Ask) else str(found.problem) if isinstance(found, Deny) else ""
    if any(not char.isprintable() for char in line):
        yield "a question or refusal that is not one printable line"
    rule = suggested(assessment, open_reasons(assessment, Mode.DEFAULT), facts())
    if rule is not None and not read_rules(rule):
        yield "a suggested rule that is none"
    explanation = explain(assessment, found, WORK, (), line=summarize(assessment, facts()), rule=rule)
    made = explanation.as_json()
    if json.loads(json.dumps(made)) != json.loads(json.dumps(json.loads(json.dumps(made)))):
        yield "JSON that changes on its way"
    render(explanation)


# Laws of two answers.


def lowered(first: str, second: str) -> Iterator[str]:
    """Yield every way in which adding `second` to the readable script `first` makes the verdict less strict."""
    tree = read(first)
    # The second parser may find a command (`a;# b`) alone that it does not reach in a whole that it cannot read.
    if isinstance(tree, Opaque) or find_disagreement(first, tree) is not None:
        return
    alone = judge(first)
    for joined in joins(first, second):
        both = judge(joined)
        # A whole that cannot be read is `unknown`: nothing below the floors is certain of it.
        if both.tiers[0] < (min(alone.tiers[0], Tier.UNKNOWN) if isinstance(read(joined), Opaque) else alone.tiers[0]):
            yield f"{alone.tiers[0].label} becomes {both.tiers[0].label}: {joined!r}"
        elif both.tiers[0] < Tier.UNKNOWN:
            for mode in (Mode.DEFAULT, Mode.TRUST_PROJECT):
                if strictness(verdict(both, mode)) < strictness(verdict(alone, mode)):
                    yield f"a laxer verdict in {mode.value}: {joined!r}"


def joins(first: str, second: str) -> Iterator[str]:
    """The ways to add a command: after it, around it, inside it."""
    yield f"{first}\n{second}"
    if "<<" in first:
        return  # a here-document ends at a line of its own
    yield f"echo $({first}\n)"
    yield f"a_new_name() {{ {first}\n}}; a_new_name"  # `first` may call `f`, which would be a recursion
    yield f"{{ {first}\n}} | cat"
    yield f"ls; {first}"
    if "#" in first or first.rstrip()[-1:] in ("", "&", ";", "\\", "|"):
        return
    for operator in ("; ", " && ", " || ", " | ", " & "):
        yield f"{first}{operator}{second}"


def narrowed(script: str, by: Profile) -> Iterator[str]:
    """Yield every mode in which the settings of a repository make a verdict less strict."""
    from policy.model.profile import narrow

    strict = narrow(profile(), by)
    for mode in (Mode.DEFAULT, Mode.DANGEROUSLY):
        usual, now = verdict(judge(script), mode), verdict(judge(script, strict), mode, by=strict)
        if strictness(now) < strictness(usual):
            yield f"a stricter profile allows more in {mode.value}"


# Texts.

# fmt: off
WORDS = (
    "ls", "cat", "rm", "rm -rf", "cp", "mv", "git", "status", "push", "--force", "find", ".", "..", "/", "-delete", "-exec", "{}", "\\;", "+",
    "sed", "-i", "s/a/b/e", "awk", "'{print}'", "xargs", "-0", "sh", "-c", "env", "X=1", "PATH=.", "a.txt", ".env", "~/.ssh/id_rsa", "~root/.ssh",
    "$HOME", "$x", "\"$x\"", "${x:-y}", "$(ls)", "`ls`", "<(ls)", ">out", ">>out", "2>&1", "</dev/null", "<<<x", "curl", "https://example.org/x",
    "*", "*.py", "{a,b}", "src", "link", "out/x", "/etc/passwd", "/tmp/x", "/dev/sda", "/dev/tcp/h/1", "cd", "pushd", "popd", "-", "--", "sudo", "timeout 5",
    "npm", "test", "python3", "make", "tar", "-xf", "x.tar", "-C", "tee", "dd", "of=x", "if=.env", "/proc/self/cwd/.env", "/proc/self/environ", "eval", "source",
    "if", "then", "fi", "for", "in", "do", "done", "while", "case", "esac", "[[", "]]", "((", "))", "!", "time", "x=5", "export", "set -e", "read x", "((x++))",
    ". ./lib", "source ./lib", "lib_print", "lib_remove", "lib_enter", "declare -A m", "m[k]=rm", "m=([k]=.env)", "\"${m[k]}\"", "${!m[@]}", "x=([0]=rm [1]=-rf)", "\"${x[@]}\"",
)
GLUE = (" ", " ", " ", " ", "; ", "\n", " | ", " && ", " || ", " & ", " (", ") ", "{ ", "; } ", "$(", ")", "`", '"', "'", "\\", "\t", " # ")
NOISE = (
    "'", '"', "`", "$", "$(", ")", "(", "{", "}", "[", "]", "\\", "\n", ";", "|", "&", "<", ">", "*", "?", "~", "#", "!", "=", "%", "@", "\0", "\r",
    "\x1b[2J", "\u202e", "\u200b", "\u00a0", "\ud800", "\udcff", "漢", "é", "<<E\n", "\nE\n", "$'\\x", "${", "$((", "))", "..", "/", "//", "-", "--", "\\\n", "=(",
)
# fmt: on


class Writer:
    """Makes texts from one source of chance: known lines mutated and spliced, a grammar, noise, bytes."""

    def __init__(self, chance: random.Random, lines: tuple[str, ...] = ()) -> None:
        self.chance = chance
        self.lines = (*examples(), *lines)

    def line(self) -> str:
        return self.chance.choice(self.lines)

    def script(self) -> str:
        kind = self.chance.random()
        if kind < 0.35:
            return self.mutated(self.line())
        if kind < 0.6:
            return self.grammar()
        if kind < 0.75:
            return self.spliced(self.line(), self.line())
        if kind < 0.85:
            return self.mutated(self.grammar())
        if kind < 0.92:
            return self.nested()
        if kind < 0.98:
            return self.noise()
        return self.huge()

    def grammar(self) -> str:
        pieces = []
        for _ in range(self.chance.randrange(1, 9)):
            pieces += [self.chance.choice(WORDS), self.chance.choice(GLUE if self.chance.random() < 0.4 else (" ",))]
        return "".join(pieces)

    def noise(self) -> str:
        if self.chance.random() < 0.3:
            data = bytes(self.chance.randrange(256) for _ in range(self.chance.randrange(1, 40)))
            return data.decode("utf-8", "surrogateescape")
        return "".join(self.chance.choice(NOISE + WORDS) for _ in range(self.chance.randrange(1, 14)))

    def nested(self) -> str:
        text = self.line()
        for _ in range(self.chance.randrange(1, 12)):
            frame = self.chance.choice(
                ("({})", "$({})", "echo $({})", "{{ {}\n}}", "bash -c '{}'", 'eval "{}"', "if {}; then {}; fi")
            )
            text = frame.replace("{}", text) if "{{" not in frame else frame.format(text)
        return text[: 1 << 20]

    def huge(self) -> str:
        count = self.chance.choice((100, 1000, 5000, 20000))
        return (
            self.chance.choice(
                (self.chance.choice(WORDS), self.line(), self.chance.choice(NOISE), "a;", "(", "$(", "a\n")
            )
            * count
        )

    def spliced(self, first: str, second: str) -> str:
        at, to = self.chance.randrange(len(first) + 1), self.chance.randrange(len(second) + 1)
        return first[:at] + self.chance.choice(("", " ", "; ", " | ", "\n")) + second[to:]

    def mutated(self, text: str) -> str:
        for _ in range(self.chance.randrange(1, 4)):
            at = self.chance.randrange(len(text) + 1)
            to = min(len(text), at + self.chance.randrange(1, 5))
            kind = self.chance.random()
            if kind < 0.45:
                text = text[:at] + self.chance.choice(NOISE + GLUE) + text[at:]
            elif kind < 0.6:
                text = text[:at] + text[to:]
            elif kind < 0.75:
                text = text[:at] + self.chance.choice(WORDS) + text[to:]
            elif kind < 0.85:
                quote = self.chance.choice(("'", '"', "`"))
                text = text[:at] + quote + text[at:to] + quote + text[to:]
            elif kind < 0.93:
                text = text[:at] + "{" + text[at:to] + ",x}" + text[to:]
            elif at < len(text):
                text = text[:at] + chr(ord(text[at]) ^ (1 << self.chance.randrange(7))) + text[at + 1 :]
        return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="JSON lines with a `cmd`; repeatable")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    corpus = tuple(json.loads(line)["cmd"] for file in options.corpus for line in file.open(encoding="utf-8"))
    writer = Writer(random.Random(seed), corpus)
    made = pairs = faulty = 0
    slowest = (0.0, "")
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        text = writer.script()
        made += 1
        before = time.perf_counter()
        judge(text)
        slowest = max(slowest, (time.perf_counter() - before, text))
        faults = list(broken(RunScript(text, WORK)))
        if made % 4 == 0 and len(text) < 2000:
            pairs += 1
            faults += lowered(text if made % 8 else writer.line(), writer.line())
        for fault in dict.fromkeys(faults):
            faulty += 1
            print(f"LAW BROKEN (seed {seed}, text {made}): {fault}: {text[:500]!r}", flush=True)
    print(f"seed {seed}: {made} texts judged, {pairs} lengthened, {faulty} laws broken")
    print(f"slowest answer {slowest[0] * 1000:.0f} ms, {len(slowest[1])} characters: {slowest[1][:80]!r}")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
