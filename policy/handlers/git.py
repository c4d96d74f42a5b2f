"""The handler of `git`: the repository and settings that a command uses, its remotes, and its output.

The subcommands are in the rule file.
"""

import re
from itertools import pairwise

from policy.handlers.git_checkout import judge_restored_files
from policy.handlers.git_contents import dashes_at, judge_printed_files
from policy.handlers.network import network_code
from policy.interpreter.command_call import Call, ParsedOptions
from policy.interpreter.judge_command import descend, judge
from policy.languages.git_config import starts_nothing
from policy.model.abstract_word import AbstractWord, literal
from policy.model.assessment import Consequence, EffectKind, Scope
from policy.model.facts import GitSource, GitSourceKind, Kind
from policy.model.frozen import replace
from policy.model.host_words import endpoint
from policy.model.tier import Tier
from policy.rules.rule import Operands, Role

_REMOTE_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.-]*::")  # gitremote-helpers(7)
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9-]*(?:\.[^=\n]+)?\.[A-Za-z][A-Za-z0-9-]*")

# Values with which a harmless flag starts a program: flag, values, predicate of the reason.
_STARTING_VALUES = (
    ("--submodule", ("diff",), "starts another git in each submodule"),
    ("--diff-merges", ("remerge", "r"), "repeats merges with merge drivers that Git settings name"),
)
_CONTACTS_REMOTE = frozenset((
    "git fetch", "git pull", "git push", "git ls-remote", "git clone", "git remote update", "git remote show",
    "git remote prune", "git remote set-head", "git submodule update", "git submodule add",
))  # fmt: skip
_TAKES_REMOTE = ("git fetch", "git pull", "git clone", "git push", "git ls-remote", "git remote", "git submodule")
# A revision that prints exactly one id or name: no range, no set of parents, no path, no blank.
_ONE_REVISION = re.compile(r"(?!.*(?:\.\.|\^[@!-]|//))[A-Za-z0-9_@][A-Za-z0-9_./@{}~^-]*")
# fmt: off
_MODIFIERS = frozenset(("--verify", "--quiet", "-q", "--abbrev-ref", "--short", "--symbolic", "--symbolic-full-name"))
_ONE_LINE = frozenset((
    "--show-toplevel", "--git-dir", "--absolute-git-dir", "--git-common-dir", "--is-inside-work-tree", "--show-cdup",
    "--is-inside-git-dir", "--is-bare-repository", "--is-shallow-repository",
))
# Flags that select commits. Flags that change how a commit is printed are not listed: they may print any text of it.
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
# Arguments of `git log` that print only the id of each commit, and those that limit it to one commit.
_ID_FORMATS = frozenset(
    f"--{flag}%{letter}" for flag in ("format=", "format=format:", "pretty=", "pretty=format:") for letter in "Hh"
)
_ONE_COMMIT = frozenset(("-1", "-n1", "--max-count=1"))
# fmt: on


def git(call: Call) -> None:
    """Judge a git command, and the repository that it uses.

    THREAT: a repository's own settings name programs (file-system monitors, filters, pagers) that git starts by itself.
    Only for the workspace's repository does the sandbox run git with these settings switched off.
    """
    shape = call.parse()
    sub = descend(call)
    sub.port = "22"  # of `host:path`; other addresses contain their port
    if sub is not call:
        _judge_global_flags(sub, shape)
        _judge_repository(sub)
    if sub is not call and len(sub.words) == 1 and sub.words[0].text == "-h" and not sub.rule.open:
        sub.add_fact(Tier.READ, "prints its help text", flag="-h")
        sub.quiet = True
    else:
        _judge_subcommand(sub)
        judge_printed_files(sub, {flag.name for flag, _ in shape.flags} if sub is not call else frozenset())
        judge_restored_files(sub)
    if not sub.quiet and sub.rule.tier is not Tier.READ:
        _report_hosts(sub)
    rule = sub.rule
    if rule.tame:
        call.prints = one_word_output(sub)
        rule = replace(rule, tame=False)
    elif sub.label == "git log" and not shape.flags and _prints_one_id(sub):
        call.prints = AbstractWord(unsplittable=True, never_an_option=True)
    call.hosts, call.rule, call.label, call.flags, call.quiet = sub.hosts, rule, sub.label, sub.flags, sub.quiet


def _report_hosts(call: Call) -> None:
    """Report the hosts of the remotes that a command uses, as the settings of the repository name them."""
    words = call.parse().operands
    verb, push = call.label.removeprefix("git "), call.label == "git push"
    if call.label not in _CONTACTS_REMOTE:
        return
    texts = [word.text for word in words if word.text is not None]
    flags = {text.partition("=")[0] for word in call.words for text in word.texts}
    for cwd in call.state.cwds or ():
        remotes = call.facts.remotes(cwd)
        if verb.startswith("submodule"):
            found = tuple(map(remotes.rewritten, remotes.modules))
        elif verb in ("remote update", "remote show", "remote prune", "remote set-head"):
            found = remotes.addresses(texts[:1] if verb == "remote set-head" else texts) if texts else remotes.every()
        elif "--all" in flags and not push:
            found = remotes.every()
        elif not words:
            usual = remotes.usual_push if push else remotes.usual
            found = remotes.addresses((usual,), push=push)
            if not found and ":" in usual:  # the setting contains an address instead of a name
                found = (remotes.rewritten(usual, push=push),)
        else:
            named = texts if "--multiple" in flags else texts[:1]
            whole = [(text, remotes.rewritten(text, push=push)) for text in named]
            # An address may also be abbreviated by a setting: `gh:a/b`.
            found = remotes.addresses(named, push=push) + tuple(address for text, address in whole if address != text)
        if "--recurse-submodules" in flags:
            found += tuple(map(remotes.rewritten, remotes.modules))
        for address in found:
            uses_helper = _REMOTE_HELPER.match(address)
            if uses_helper:
                call.runs("reaches a remote through a program that the repository's settings name", consequence=None)
                call.connects("", words[0] if words else None, Scope.WORKSPACE)
            host = endpoint(address, call.port) if ":" in address and not uses_helper else None  # None: a path
            call.hosts += 1
            if host is not None:
                call.connects(host, words[0] if words else None, Scope.WORKSPACE)


def _judge_subcommand(call: Call) -> None:
    divided = bool(call.rule.subs)
    if call.label != "git":
        call.rule = replace(call.rule, subs={})  # `descend` found no subcommand
    shape = call.parse()
    if shape.bounded and (divided or call.label == "git restore"):
        # THREAT T166: the word may be a subcommand that forgets (`git stash drop`), or every file of the workspace.
        call.unknown_words(shape.trouble, shape.where)
        return
    if call.label == "git remote show" and not shape.operands and not shape.trouble:
        call.rule = replace(call.rule, tier=Tier.READ, why="lists remotes")
    if call.label == "git submodule foreach" and len(shape.operands) == 1:
        call.rule = replace(call.rule, operands=Operands((Role.SCRIPT,)))  # a single word is run by a shell
    if shape.trouble and not call.rule.open:
        call.rule = replace(call.rule, otherwise=None)
    if call.label == "git config" or call.label.startswith("git config "):
        _judge_config(call, shape)
    if call.label in ("git checkout", "git restore") and (files := _lost_files(call, shape)):
        call.rule = replace(call.rule, why=f"throws away uncommitted changes in {files}")
    if call.rule.grammar == "network-code":
        network_code(call)
    else:
        judge(call)
    if call.label in ("git checkout", "git restore"):
        _report_lost_changes(call, shape)
    elif call.label == "git archive":
        _judge_archive(call)
    for flag, values, predicate in _STARTING_VALUES:
        value = call.flags.get(flag)
        if value is not None and (value.text is None or value.text in values):
            call.runs(predicate, value, program=flag, consequence=None)
    if call.label in ("git submodule add", "git submodule update"):
        _judge_submodule(call)
    if call.label.startswith(_TAKES_REMOTE):
        for word in call.words:
            if any("::" in text for text in word.texts):
                call.runs(f"starts a program to reach `{word.text}`", word, consequence=None)


def _judge_submodule(call: Call) -> None:
    """Report the files of settings in which Git enters a submodule. They are locked, so an approval must open them."""
    words = {text for word in call.words for text in word.texts}
    adds = call.label == "git submodule add"
    if not adds and "--init" not in words:
        return
    classifier, facts = call.findings.classifier, call.facts
    if any(classifier.foreign_repository(cwd) is not None for cwd in call.state.cwds or ()):
        return
    folder = facts.repository[0] if facts.repository else f"{facts.workspace}/.git"
    for path in (f"{folder}/config", *((f"{facts.workspace}/.gitmodules",) if adds else ())):
        if facts.look(path).kind is Kind.FILE:
            call.access_path(Role.WRITE, literal(path))


def _judge_global_flags(call: Call, shape: ParsedOptions) -> None:
    """Judge `-c key=value` and the repository that flags name. THREAT: almost any setting can name a program."""
    workspace = call.facts.workspace
    folders = {flag.name: value for flag, value in shape.flags if flag.name in ("--git-dir", "--work-tree")}
    for flag, value in shape.flags:
        text = value.text if value is not None else None
        key, equals, setting = (text or "").partition("=")
        if flag.name == "-c" and (text is None or not starts_nothing(key, setting if equals else None)):
            changed = key if text is not None else "a setting"
            call.unknown(f"`git -c` changes `{changed}`, which may name a program", value)
    if not folders:
        return
    classifier, cwds = call.findings.classifier, call.state.cwds or ()
    expected = {"--git-dir": f"{workspace}/.git", "--work-tree": workspace}
    same = bool(cwds) and ("--work-tree" in folders or cwds == (workspace,))
    for name, value in folders.items():
        role = Role.NAMES if call.rule.tier is Tier.READ else Role.WRITE
        if value is None or not value.texts:
            call.unknown(f"`git {name}` with a folder known only at run time", value)
            continue
        call.access_path(role, value)
        places = {classifier.place(text, cwd).path for text in value.texts for cwd in cwds}
        same = same and places == {expected[name]}
    if not same:
        _report_settings(call, "uses a repository or folder that its flags name, whose settings may run programs")
        git_dir = folders.get("--git-dir")
        if git_dir is not None and call.rule.changes.startswith(".git"):
            rest = call.rule.changes.removeprefix(".git")
            places = {classifier.place(text, cwd).path + rest for text in git_dir.texts for cwd in cwds}
            below = [place.removeprefix(f"{workspace}/") for place in places if place.startswith(f"{workspace}/")]
            # `.` represents any file of the workspace.
            call.rule = replace(call.rule, changes=below[0] if len(below) == len(places) == 1 else ".")


def _report_settings(call: Call, predicate: str) -> None:
    """Report programs that settings may name, as a fact about `git` and not about the subcommand."""
    call.findings.add_effect(EffectKind.RUNS, "git")
    call.findings.add_fact(Tier.EXECUTE, "git", predicate, call.rule.ref, call.span, None)


def _judge_repository(call: Call) -> None:
    if call.state.cwds is None:
        call.unknown("`git` in a folder known only at run time")
        return
    facts = call.facts
    if facts.beyond:
        _report_settings(call, f"uses the settings of this repository, which {facts.beyond}")
    for cwd in call.state.cwds:
        other = call.findings.classifier.foreign_repository(cwd)
        if other is None:
            continue
        shown = call.findings.classifier.shown(other)
        _report_settings(call, f"uses the settings of another repository, {shown}, which may run programs")
        if call.rule.tier is not Tier.READ or call.rule.changes:
            place = "" if call.rule.changes in ("", ".") else f"/{call.rule.changes}"
            inside = other.startswith(f"{facts.workspace}/")
            below = f"{other[len(facts.workspace) + 1 :]}{place}" if inside else ""
            call.rule = replace(call.rule, changes=below)
            if not inside and call.rule.tier is not Tier.READ:
                call.access_path(Role.WRITE, literal(f"{other}{place}"))


def _judge_config(call: Call, shape: ParsedOptions) -> None:
    """Judge `git config` by the file that it changes: the settings of the repository, the user or the system, or a
    named file. A key without a value is only shown.
    """
    flags = {flag.name for flag, _ in shape.flags}
    keys = [word.text for word in shape.operands]
    changing = any(flag.tier is not None for flag, _ in shape.flags)
    one = len(keys) == 1 and keys[0] is not None and bool(_KEY.fullmatch(keys[0]))
    if call.label == "git config" and one and not shape.trouble and not changing:
        call.rule = replace(call.rule, listing=frozenset())
        return
    looks = call.label in ("git config get", "git config list") or (
        call.label == "git config" and not changing and (not keys or flags & call.rule.listing)
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


def _overwritten_words(call: Call, shape: ParsedOptions) -> tuple[list[AbstractWord], bool] | None:
    """Return the words of `git checkout` or `git restore` that may be files to overwrite, and True if they follow a
    `--`. Return None if only the index changes.
    """
    flags = {flag.name for flag, _ in shape.flags}
    if call.label == "git restore" and flags & {"--staged", "-S"} and not flags & {"--worktree", "-W"}:
        return None
    dashes = dashes_at(call)
    return (shape.operands, False) if dashes is None else (call.words[dashes + 1 :], True)


def _is_branch(call: Call, name: str) -> bool:
    folder = call.facts.repository[0] if call.facts.repository else f"{call.facts.workspace}/.git"
    return call.facts.look(f"{folder}/refs/heads/{name}").kind is not Kind.MISSING


def _lost_files(call: Call, shape: ParsedOptions) -> str:
    """Return the files whose changes are lost, in backticks; empty if they are uncertain, too many, or none."""
    words, marked = _overwritten_words(call, shape) or ([], True)
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


def _report_lost_changes(call: Call, shape: ParsedOptions) -> None:
    """Report the loss of uncommitted changes. THREAT: `git checkout .` discards all uncommitted changes silently."""
    words, marked = _overwritten_words(call, shape) or ([], True)
    certain = marked or call.label == "git restore"
    for index, word in enumerate(words):
        text = word.text
        if text is None:
            lost, shown = certain, "files known only at run time"
        else:
            places = (call.findings.classifier.place(text, cwd) for cwd in call.state.cwds or ())
            folder = any(place.kind is Kind.FOLDER for place in places)
            whole = text in _EVERYTHING or text.endswith("/") or text.startswith(":") or "*" in text
            lost, shown = whole or (folder and (certain or index > 0 or not _is_branch(call, text))), f"`{text}`"
        if lost:
            consequence = Consequence.DISCARDS_CHANGES if text == "." else None
            predicate = f"throws away all uncommitted changes to {shown}"
            call.add_fact(Tier.DANGEROUS, predicate, word, consequence=consequence)
            return


def _judge_archive(call: Call) -> None:
    """Judge the format of an archive. Git itself writes tar and zip; settings may name a program for other formats."""
    for name in ("--format", "-o", "--output"):
        value = call.flags.get(name)
        known = ("tar", "zip") if name == "--format" else (".tar", ".zip")
        if value is not None and not (value.text or "").endswith(known):
            call.runs("writes the archive with a program that Git settings may name", value, consequence=None)


def _prints_one_id(call: Call) -> bool:
    """Return True if `git log` certainly prints one id, or nothing. No other argument than a revision is understood."""
    words = [word.text for word in call.words]
    chosen, rest = frozenset(words[:2]), words[2:]
    if None in words or len(chosen & _ID_FORMATS) != 1 or len(chosen & _ONE_COMMIT) != 1:
        return False
    return not rest or (len(rest) == 1 and bool(_ONE_REVISION.fullmatch(rest[0] or "")))


_MOST_NAMED = 3  # files that a reason names
_EVERYTHING = (".", "..", ":/", "*", ":")


def one_word_output(call: Call) -> AbstractWord | None:
    """Return a bound of the output if the output is certainly one word (an id, a number or a name), else None.

    THREAT: the author of the repository chooses the subject of a commit and the name of a file; in `git diff $(git ..)`
    it would become a flag. The same applies to the short name of a branch or a tag, if the repository contains one that
    is called `--output=x`.
    """
    operands = [word.text for word in call.words if word.text is None or word.text[:1] != "-"]
    name = call.label.rpartition(" ")[2]
    if not _prints_one_word(call, name, operands):
        return None
    # True: the command may print the short name of a branch or tag.
    short = {
        "rev-parse": not call.flags.keys().isdisjoint(("--abbrev-ref", "--symbolic")),
        "symbolic-ref": "--short" in call.flags,
        "describe": "--all" not in call.flags,
        "branch": True,
    }
    dashed = short.get(name, False) and call.facts.tracked(GitSource(GitSourceKind.DASHED)) != ()
    return AbstractWord(unsplittable=True, never_an_option=not dashed)


def _prints_one_word(call: Call, command: str, operands: list[str | None]) -> bool:
    """Return True if the command certainly prints one word."""
    flags = set(call.flags)
    one = len(operands) == 1 and operands[0] is not None and bool(_ONE_REVISION.fullmatch(operands[0]))
    match command:
        case "rev-parse" if operands:
            return flags <= _MODIFIERS and len(call.words) == len(flags) + 1 and one
        case "rev-parse":
            return len(flags) == 1 and flags <= _ONE_LINE
        case "rev-list":
            single = "--count" in flags or any(word.text in ("-1", "-n1", "--max-count=1") for word in call.words)
            counts = {first.text for first, second in pairwise(call.words) if second.text == "1"}
            return flags <= _SELECTING and (single or not counts.isdisjoint(("-n", "--max-count")))
        case "merge-base":
            return flags.isdisjoint(("-a", "--all", "--independent", "--is-ancestor"))
        case "describe":
            return flags <= _DESCRIBING and (not operands or one)
        case "branch":
            return flags == {"--show-current"} and not operands
        case "symbolic-ref":
            return flags <= {"-q", "--quiet", "--short"} and operands == ["HEAD"]
    return False
