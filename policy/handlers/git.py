"""The command git: its subcommands are in the rule file; whose settings it obeys, and its output, is decided here."""

import re
from dataclasses import replace
from itertools import pairwise

from policy.handlers.git_checkout import brought
from policy.handlers.git_contents import dashes_at, kept
from policy.handlers.network import network_code
from policy.interpreter.command_call import Call, ParsedOptions
from policy.interpreter.judge_command import descend, judge
from policy.languages.git_config import starts_nothing
from policy.model.abstract_word import AbstractWord, literal
from policy.model.assessment import Consequence, EffectKind, Scope
from policy.model.facts import Kind
from policy.model.host_words import endpoint
from policy.model.tier import Tier
from policy.rules.rule import Operands, Role

_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")  # gitremote-helpers(7)
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9-]*(?:\.[^=\n]+)?\.[A-Za-z][A-Za-z0-9-]*")

# Values of harmless flags that start something: flag, values, what that does.
_STARTING = (
    ("--submodule", ("diff",), "starts another git in each submodule"),
    ("--diff-merges", ("remerge", "r"), "repeats merges with merge drivers that Git settings name"),
)
_REMOTE = frozenset((
    "git fetch", "git pull", "git push", "git ls-remote", "git clone", "git remote update", "git remote show",
    "git remote prune", "git remote set-head", "git submodule update", "git submodule add",
))  # fmt: skip
_MODIFIES = ("git fetch", "git pull", "git clone", "git push", "git ls-remote", "git remote", "git submodule")
# One revision that prints one id or name: no range, no set of parents, no path, nothing with a blank.
_ONE = re.compile(r"(?!.*(?:\.\.|\^[@!-]|//))[A-Za-z0-9_@][A-Za-z0-9_./@{}~^-]*")
# fmt: off
_MODIFIERS = frozenset(("--verify", "--quiet", "-q", "--abbrev-ref", "--short", "--symbolic", "--symbolic-full-name"))
_ONE_LINE = frozenset((
    "--show-toplevel", "--git-dir", "--absolute-git-dir", "--git-common-dir", "--is-inside-work-tree", "--show-cdup",
    "--is-inside-git-dir", "--is-bare-repository", "--is-shallow-repository",
))
# What selects commits, beside what changes how one is printed (which could be any text of a commit).
_SELECTING = frozenset((
    "-#", "-n", "--max-count", "--count", "--all", "--branches", "--tags", "--remotes", "--merges", "--no-merges",
    "--first-parent", "--reverse", "--since", "--after", "--until", "--before", "--author", "--committer", "--grep",
    "--skip", "--abbrev-commit", "--abbrev", "--topo-order", "--date-order", "--no-walk",
    "--max-parents", "--min-parents",
))
_DESCRIBING = frozenset((
    "--all", "--tags", "--contains", "--abbrev", "--exact-match", "--long", "--match", "--exclude", "--always",
    "--first-parent",
))
# fmt: on


def git(call: Call) -> None:
    """Judge a git command, and the repository that it would work in.

    THREAT: a repository's own settings name programs (file-system monitors, filters, pagers) that git starts by itself.
    Only for the workspace's repository does the sandbox run git with these settings switched off.
    """
    shape = call.parse()
    sub = descend(call)
    sub.port = "22"  # of `host:path`; addresses of other kinds say theirs
    if sub is not call:
        _given(sub, shape)
        _whose(sub)
    if sub is not call and len(sub.words) == 1 and sub.words[0].text == "-h" and not sub.rule.open:
        sub.add_fact(Tier.READ, "prints its help text", flag="-h")
        sub.quiet = True
    else:
        _judge(sub)
        kept(sub, {flag.name for flag, _ in shape.flags} if sub is not call else frozenset())
        brought(sub)
    if not sub.quiet and sub.rule.tier is not Tier.READ:
        _connects(sub)
    rule = sub.rule
    if rule.tame:
        call.prints = prints_one(sub)
        rule = replace(rule, tame=False)
    call.hosts, call.rule, call.label, call.flags, call.quiet = sub.hosts, rule, sub.label, sub.flags, sub.quiet


def _connects(call: Call) -> None:
    """Report the hosts of the remotes that a command uses. The settings of the repository alone name them."""
    words = call.parse().operands
    verb, push = call.label.removeprefix("git "), call.label == "git push"
    if call.label not in _REMOTE:
        return
    texts = [word.text for word in words if word.text is not None]
    given = {text.partition("=")[0] for word in call.words for text in word.texts}
    for cwd in call.state.cwds or ():
        known = call.facts.remotes(cwd)
        if verb.startswith("submodule"):
            found = tuple(map(known.rewritten, known.modules))
        elif verb in ("remote update", "remote show", "remote prune", "remote set-head"):
            found = known.addresses(texts[:1] if verb == "remote set-head" else texts) if texts else known.every()
        elif "--all" in given and not push:
            found = known.every()
        elif not words:
            usual = known.usual_push if push else known.usual
            found = known.addresses((usual,), push=push)
            if not found and ":" in usual:  # an address in place of a name
                found = (known.rewritten(usual, push=push),)
        else:
            named = texts if "--multiple" in given else texts[:1]
            whole = [(text, known.rewritten(text, push=push)) for text in named]
            # An address may be written in short, too: `gh:a/b`.
            found = known.addresses(named, push=push) + tuple(address for text, address in whole if address != text)
        if "--recurse-submodules" in given:
            found += tuple(map(known.rewritten, known.modules))
        for address in found:
            helped = _HELPER.match(address)
            if helped:
                call.runs("reaches a remote through a program that the repository's settings name", consequence=None)
                call.connects("", words[0] if words else None, Scope.WORKSPACE)
            host = endpoint(address, call.port) if ":" in address and not helped else None  # or it is a path
            call.hosts += 1
            if host is not None:
                call.connects(host, words[0] if words else None, Scope.WORKSPACE)


def _judge(call: Call) -> None:
    if call.label != "git":
        call.rule = replace(call.rule, subs={})  # none of them follows, or `descend` had found it
    shape = call.parse()
    if call.label == "git remote show" and not shape.operands and not shape.trouble:
        call.rule = replace(call.rule, tier=Tier.READ, why="lists remotes")
    if call.label == "git submodule foreach" and len(shape.operands) == 1:
        call.rule = replace(call.rule, operands=Operands((Role.SCRIPT,)))  # one word is for a shell
    if shape.trouble and not call.rule.open:
        call.rule = replace(call.rule, otherwise=None)
    if call.label == "git config" or call.label.startswith("git config "):
        _config(call, shape)
    if call.label in ("git checkout", "git restore") and (files := _restored(call, shape)):
        call.rule = replace(call.rule, why=f"throws away uncommitted changes in {files}")
    if call.rule.grammar == "network-code":
        network_code(call)
    else:
        judge(call)
    if call.label in ("git checkout", "git restore"):
        _restore(call, shape)
    elif call.label == "git archive":
        _archive(call)
    for flag, values, predicate in _STARTING:
        value = call.flags.get(flag)
        if value is not None and (value.text is None or value.text in values):
            call.runs(predicate, value, program=flag, consequence=None)
    if call.label.startswith(_MODIFIES):
        for word in call.words:
            if any("::" in text for text in word.texts):
                call.runs(f"starts a program to reach `{word.text}`", word, consequence=None)


def _given(call: Call, shape: ParsedOptions) -> None:
    """Judge `-c key=value`, and the repository that flags name. THREAT: almost any setting can name a program."""
    own = call.facts.workspace
    named = {flag.name: value for flag, value in shape.flags if flag.name in ("--git-dir", "--work-tree")}
    for flag, value in shape.flags:
        text = value.text if value is not None else None
        key, equals, setting = (text or "").partition("=")
        if flag.name == "-c" and (text is None or not starts_nothing(key, setting if equals else None)):
            changed = key if text is not None else "a setting"
            call.unknown(f"`git -c` changes `{changed}`, which may name a program", value)
    if not named:
        return
    classifier, cwds = call.findings.classifier, call.state.cwds or ()
    expected = {"--git-dir": f"{own}/.git", "--work-tree": own}
    same = bool(cwds) and ("--work-tree" in named or cwds == (own,))
    for name, value in named.items():
        role = Role.NAMES if call.rule.tier is Tier.READ else Role.WRITE
        if value is None or not value.texts:
            call.unknown(f"`git {name}` with a folder known only at run time", value)
            continue
        call.access_path(role, value)
        places = {classifier.place(text, cwd).path for text in value.texts for cwd in cwds}
        same = same and places == {expected[name]}
    if not same:
        _obeys(call, "uses a repository or folder that its flags name, whose settings may run programs")
        given = named.get("--git-dir")
        if given is not None and call.rule.changes.startswith(".git"):
            rest = call.rule.changes.removeprefix(".git")
            places = {classifier.place(text, cwd).path + rest for text in given.texts for cwd in cwds}
            below = [place.removeprefix(f"{own}/") for place in places if place.startswith(f"{own}/")]
            # `.` stands for anything in the workspace.
            call.rule = replace(call.rule, changes=below[0] if len(below) == len(places) == 1 else ".")


def _obeys(call: Call, predicate: str) -> None:
    """Report code that settings may name as a fact about Git itself."""
    call.findings.add_effect(EffectKind.RUNS, "git")
    call.findings.add_fact(Tier.EXECUTE, "git", predicate, call.rule.ref, call.span, None)


def _whose(call: Call) -> None:
    if call.state.cwds is None:
        call.unknown("`git` in a folder known only at run time")
        return
    facts = call.facts
    if facts.beyond:
        _obeys(call, f"uses the settings of this repository, which {facts.beyond}")
    for cwd in call.state.cwds:
        other = call.findings.classifier.foreign_repository(cwd)
        if other is None:
            continue
        shown = call.findings.classifier.shown(other)
        _obeys(call, f"uses the settings of another repository, {shown}, which may run programs")
        if call.rule.tier is not Tier.READ or call.rule.changes:
            place = "" if call.rule.changes in ("", ".") else f"/{call.rule.changes}"
            inside = other.startswith(f"{facts.workspace}/")
            below = f"{other[len(facts.workspace) + 1 :]}{place}" if inside else ""
            call.rule = replace(call.rule, changes=below)
            if not inside and call.rule.tier is not Tier.READ:
                call.access_path(Role.WRITE, literal(f"{other}{place}"))


def _config(call: Call, shape: ParsedOptions) -> None:
    """Judge `git config` by the owner of the settings: the repository, the user, the system, or a file. A key alone is
    only shown.
    """
    given = {flag.name for flag, _ in shape.flags}
    keys = [word.text for word in shape.operands]
    changing = any(flag.tier is not None for flag, _ in shape.flags)
    one = len(keys) == 1 and keys[0] is not None and bool(_KEY.fullmatch(keys[0]))
    if call.label == "git config" and one and not shape.trouble and not changing:
        call.rule = replace(call.rule, listing=frozenset())
        return
    looks = call.label in ("git config get", "git config list") or (
        call.label == "git config" and not changing and (not keys or given & call.rule.listing)
    )
    words = [word.text or "" for word in call.words]
    if looks and not shape.trouble:
        return
    files = [after for flag, after in pairwise(words) if flag in ("-f", "--file")]
    files += [word.partition("=")[2] for word in words if word.startswith("--file=")]
    files += [f"{call.facts.home}/.gitconfig"] if "--global" in words else []
    files += ["/etc/gitconfig"] if "--system" in words else []
    if files:
        call.rule = replace(call.rule, changes="")
    for file in files:
        call.access_path(Role.WRITE, literal(file))


def _discarded(call: Call, shape: ParsedOptions) -> tuple[list[AbstractWord], bool] | None:
    """Return the words of `git checkout` or `git restore` that may be files to overwrite, and True if a `--` marks
    them. None: only the index changes.
    """
    given = {flag.name for flag, _ in shape.flags}
    if call.label == "git restore" and given & {"--staged", "-S"} and not given & {"--worktree", "-W"}:
        return None
    dashes = dashes_at(call)
    return (shape.operands, False) if dashes is None else (call.words[dashes + 1 :], True)


def _is_branch(call: Call, name: str) -> bool:
    return call.facts.look(f"{call.facts.workspace}/.git/refs/heads/{name}").kind is not Kind.MISSING


def _restored(call: Call, shape: ParsedOptions) -> str:
    """Return the files whose changes are lost, in backticks; empty if that is not certain, or nothing is lost."""
    words, marked = _discarded(call, shape) or ([], True)
    names = [word.text for word in words if word.text is not None]
    if not marked and call.label == "git checkout":
        cwds, place = call.state.cwds or (), call.findings.classifier.place
        if any(_is_branch(call, name) for name in names) or any(
            place(name, cwd).kind is Kind.MISSING for name in names for cwd in cwds
        ):
            return ""
    if len(names) != len(words) or not 0 < len(names) <= _MOST_NAMED:
        return ""
    return ", ".join(f"`{name}`" for name in names)


def _restore(call: Call, shape: ParsedOptions) -> None:
    """Report the loss of uncommitted changes. THREAT: `git checkout .` discards all of them without a message."""
    words, marked = _discarded(call, shape) or ([], True)
    sure = marked or call.label == "git restore"
    for index, word in enumerate(words):
        text = word.text
        if text is None:
            lost, shown = sure, "files known only at run time"
        else:
            places = (call.findings.classifier.place(text, cwd) for cwd in call.state.cwds or ())
            folder = any(place.kind is Kind.FOLDER for place in places)
            whole = text in _EVERYTHING or text.endswith("/") or text.startswith(":") or "*" in text
            lost, shown = whole or (folder and (sure or index > 0 or not _is_branch(call, text))), f"`{text}`"
        if lost:
            consequence = Consequence.DISCARDS_CHANGES if text == "." else None
            predicate = f"throws away all uncommitted changes to {shown}"
            call.add_fact(Tier.DANGEROUS, predicate, word, consequence=consequence)
            return


def _archive(call: Call) -> None:
    """Judge the format of an archive: git writes tar and zip itself, and any other format by a program that settings
    may name.
    """
    for name in ("--format", "-o", "--output"):
        value = call.flags.get(name)
        known = ("tar", "zip") if name == "--format" else (".tar", ".zip")
        if value is not None and not (value.text or "").endswith(known):
            call.runs("writes the archive with a program that Git settings may name", value, consequence=None)


_MOST_NAMED = 3  # files that a reason names
_EVERYTHING = (".", "..", ":/", "*", ":")


def prints_one(call: Call) -> AbstractWord | None:
    """Return a bound of the output if it is certainly one word: an id, a number or a name; else None.

    THREAT: the author of the repository chooses the subject of a commit and the name of a file; in `git diff $(git ..)`
    it would become a flag. The same applies to the short name of a branch or a tag: a clone may contain `--output=x` as
    both.
    """
    operands = [word.text for word in call.words if word.text is None or word.text[:1] != "-"]
    name = call.label.rpartition(" ")[2]
    if not _certain(call, name, operands):
        return None
    # These may print the short name of a branch or tag.
    short = {
        "rev-parse": not call.flags.keys().isdisjoint(("--abbrev-ref", "--symbolic")),
        "symbolic-ref": "--short" in call.flags,
        "describe": "--all" not in call.flags,
        "branch": True,
    }
    return AbstractWord(unsplittable=True, never_an_option=not short.get(name, False))


def _certain(call: Call, command: str, operands: list[str | None]) -> bool:
    """Return True if the command certainly prints one word."""
    given = set(call.flags)
    one = len(operands) == 1 and operands[0] is not None and bool(_ONE.fullmatch(operands[0]))
    match command:
        case "rev-parse" if operands:
            return given <= _MODIFIERS and len(call.words) == len(given) + 1 and one
        case "rev-parse":
            return len(given) == 1 and given <= _ONE_LINE
        case "rev-list":
            single = "--count" in given or any(word.text in ("-1", "-n1", "--max-count=1") for word in call.words)
            counts = {first.text for first, second in pairwise(call.words) if second.text == "1"}
            return given <= _SELECTING and (single or not counts.isdisjoint(("-n", "--max-count")))
        case "merge-base":
            return given.isdisjoint(("-a", "--all", "--independent", "--is-ancestor"))
        case "describe":
            return given <= _DESCRIBING and (not operands or one)
        case "branch":
            return given == {"--show-current"} and not operands
        case "symbolic-ref":
            return given <= {"-q", "--quiet", "--short"} and operands == ["HEAD"]
    return False
