"""Operand roles: the effects that a program has through one of its words."""

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from policy.describe.phrases import secret_kind
from policy.interpreter.command_call import Call
from policy.interpreter.shell_state import State
from policy.model.abstract_word import AbstractWord, literal
from policy.model.assessment import Consequence, EffectKind, Scope
from policy.model.facts import GitSource, GitSourceKind
from policy.model.frozen import replace
from policy.model.glob import late
from policy.model.host_words import ADDRESS, LOGIN, SENT_FILE, WHOLE_HOST, endpoint, is_remote_path, mounted
from policy.model.secret_names import sometimes
from policy.model.tier import Tier
from policy.rules.rule import Role

if TYPE_CHECKING:
    from policy.languages.language_result import Reading

_LANGUAGES = (Role.SED, Role.AWK, Role.JQ)
# `NAME@KIND:REST` on a command line of a package manager of Node.js: an alias, a folder or a repository.
_SPECIFIED = late(
    r"(?:@[^/@:]+/)?[^/@:]+@(npm|jsr|workspace|catalog|patch|file|link|portal|github|gitlab|bitbucket|gist):(?!//)(.*)",
    re.DOTALL,
)
_PLACES = ("file", "link", "portal")
_HOSTED = {"github": "github.com", "gitlab": "gitlab.com", "bitbucket": "bitbucket.org", "gist": "gist.github.com"}
_NODE_MANAGERS = frozenset(["npm", "npx", "yarn", "pnpm", "pnpx", "bun", "bunx"])
LOCAL_URL = late(r"file:(?://(?:(?:localhost|127\.0\.0\.1)(?=/))?)?", re.IGNORECASE)
# The spelling that each role requires; other words may have another meaning. Texts: `re` compiles them at their first
# use.
_REQUIRED = {
    Role.FORMAT: r"[A-Za-z0-9_+-]+",
    Role.KEY: r"(?!.*\.\.)[A-Za-z0-9_.*/:-]+",  # THREAT: `sysctl /../../etc/x` names a file outside of /proc/sys
    Role.FILE: r"[A-Za-z0-9_./~+-][A-Za-z0-9_./~+ @,-]*",
    Role.PAIR: r"(?s:(?![%:])(?:[^=:]|:(?!=))*(?:=(?![%:]).*)?)",
    Role.XPATH: r"(?si:(?!.*(?:document|evaluate|unparsed|extension|script))[^\0]*)",
    Role.PICTURE: r"(?i:[A-Za-z0-9_./~+-][A-Za-z0-9_./~+ -]*\.(?:png|jpe?g|gif|bmp|tiff?|webp|ico|avif))",
}
_LEFT_OUT = late(r":(?:[!^]|\(exclude\))")  # gitglossary(7), pathspec
_FETCHED = late(r"(?:https?|ftps?)://", re.IGNORECASE)


def apply(call: Call, role: Role, word: AbstractWord) -> None:
    """Add the effects of one word, by its role."""
    if role in _LANGUAGES:
        _program(call, role, word)
    elif role is Role.HOST:
        connect(call, word)
    elif role in _REQUIRED:
        if word.text is None or not re.fullmatch(_REQUIRED[role], word.text):
            _other_spelling(call, word)
        elif role in (Role.FILE, Role.PICTURE):
            call.access_path(Role.READ, word)
        elif role is Role.PAIR:
            apply(call, Role.UPLOAD, word)
    elif role is Role.CODE:
        call.runs("runs code that is not analysed", word)
        text = word.text
        # The name of a hidden secret such as `.env` is no code such as `process.env`.
        hidden = text is not None and text[:1] == "." and call.findings.classifier.secret_parts(text)
        if text is not None and " " not in text and ("/" in text or hidden):
            call.access_path(Role.READ, word)
    elif role is Role.REFSPEC:
        for text in word.texts:
            if text.startswith(("+", ":")):
                predicate = f"overwrites or deletes a branch by `{text}`"
                call.add_fact(Tier.DANGEROUS, predicate, word, consequence=Consequence.OVERWRITES_BRANCH)
    elif role is Role.REMOTE:
        if word.text is None or ADDRESS.match(word.text) or word.text.startswith(("/", "./", "../", "~")):
            connect(call, word)
    elif role is Role.UPLOAD:
        match = SENT_FILE.match(word.text if word.text is not None else word.head)
        if match and match[1] != "-":
            sent = literal(match[1], word.span) if word.text is not None else replace(word, head=match[1])
            call.access_path(Role.READ, sent)
    elif role in (Role.FROM, Role.TO):
        if word.text is None or not is_remote_path(word.text):
            call.access_path(Role.READ if role is Role.FROM else Role.WRITE, word)
    elif role is Role.OUT:
        if word.text != "-":
            call.access_path(Role.WRITE, word)
    elif role is Role.MOUNT:
        _mount(call, word)
    elif role is Role.SCRIPT:
        if word.text is None:
            call.unknown(f"the script that `{call.label}` runs is known only at run time", word)
        else:
            state = replace(call.state, variables={}, arguments=None)
            call.run_script(word.text, state, word.span)
    elif role is Role.REVISION:
        _revision(call, word)
    elif role is Role.FOLDER:
        call.state = enter(call, word)
    elif role in (Role.READ, Role.TREE) and word.text is not None and _FETCHED.match(word.text):
        connect(call, word)  # some programs download a URL that they are given to read
    elif role in (Role.READ, Role.TREE) and word.text is not None and LOCAL_URL.match(word.text):
        # Some programs accept the URL of a local file.
        call.access_path(role, literal(LOCAL_URL.sub("", word.text), word.span))
    elif role not in (Role.DATA, Role.PORT):
        call.access_path(role, word)
        if word.text is not None and word.text[:1] == "@":  # some programs read their arguments from such a file
            call.access_path(role, AbstractWord(hints=(word.text[1:],), span=word.span))


def _mount(call: Call, word: AbstractWord) -> None:
    """Report a path that is mounted into a container, which may also write it unless the word is marked read-only."""
    if word.text is None:
        call.unknown(f"`{call.label}` passes on a path known only at run time", word)
        return
    source, fixed = mounted(word.text)
    if source:
        call.access_path(Role.READ, literal(source, word.span))
        if not fixed:
            call.access_path(Role.WRITE, literal(source, word.span))


def _other_spelling(call: Call, word: AbstractWord) -> None:
    """Judge a word that is not spelled as its role requires, as a use that the rule does not describe."""
    tier = call.rule.otherwise
    if tier is None:
        call.unknown(f"a word with another possible meaning for `{call.label}`", word)
    else:
        call.add_undescribed_use(tier, word)
        call.add_writes(tier)


def _program(call: Call, role: Role, word: AbstractWord) -> None:
    if word.text is None and role is Role.JQ and call.rule.anywhere:
        return  # no jq program changes, runs or sends anything; a module that it loads is a file it reads
    if not word.texts:
        call.unknown(f"the program given to `{call.label}` is known only at run time", word)
    for text in word.texts:
        call.findings.classifier.budget.spend(len(text))
        reading, starts = _read(role, text), None
        if reading.tier is Tier.EXECUTE:
            call.findings.add_effect(EffectKind.RUNS, call.label)
            starts = Consequence.STARTS_PROGRAMS
        elif reading.tier is Tier.UNKNOWN:
            call.findings.add_effect(EffectKind.UNKNOWN, reading.why)
        if reading.tier is not Tier.READ:
            call.add_sentence(reading.tier, f"`{call.label}`: {reading.why}", reading.why, word, starts)
        for path in reading.writes:
            call.access_path(Role.WRITE, literal(path, word.span))
        for path in reading.reads:
            call.access_path(Role.READ, literal(path, word.span))


def _read(role: Role, text: str) -> "Reading":
    """Return the effects of a program in sed, awk or jq. Only the reader of that language is imported."""
    if role is Role.SED:
        from policy.languages.sed import read_sed

        return read_sed(text)
    if role is Role.AWK:
        from policy.languages.awk import read_awk

        return read_awk(text)
    from policy.languages.jq import read_jq

    return read_jq(text)


def connect(call: Call, word: AbstractWord) -> None:
    """Report the host that a word names: a URL, `user@host:path`, or a bare name."""
    if len(word.texts) > 1:  # `https://host/$i`, one of a few
        for each in word.texts:
            connect(call, literal(each, word.span))
        return
    text = word.text
    if text is None and WHOLE_HOST.match(word.head):
        text = word.head  # only the end of the address is uncertain: `https://host/path?query` is a glob to bash
    call.hosts += 1
    host = endpoint(text, call.port) if text is not None else ""
    if host is None and text is not None:
        # A local path in place of a host; `file://` may name this machine before it.
        local = unquote(LOCAL_URL.sub("", text)) if LOCAL_URL.match(text) else text
        call.access_path(Role.READ, word if local == text else literal(local, word.span))
    elif call.local and host:
        call.uses_loopback(host, word)
    else:
        call.connects(host or "", word)


def _revision(call: Call, word: AbstractWord) -> None:
    """Judge a Git revision or a path. `REV:PATH` shows a file of the past, so the name of that file counts too."""
    if word.pattern:
        call.suspect(word)
    for text in word.texts or word.hints:
        if _LEFT_OUT.match(text):
            continue  # an excluded path
        path = text.rpartition(":")[2] if ":" in text else text
        if text.startswith(("/", "~", "..")) or "/../" in text:
            call.access_path(Role.READ, literal(text, word.span))
        elif call.findings.classifier.secret_parts(path):
            target = f"{call.facts.workspace}/{path}"  # it may exist only in the history; the name tells its content
            call.findings.add_effect(EffectKind.READS, target, Scope.SECRET)
            call.add_reason(Tier.SECRET, f"reads {path}, {secret_kind(path)}", word)
        elif ":" in text and sometimes(path.rpartition("/")[2]):
            _stored_login(call, text, path, word)


def _stored_login(call: Call, text: str, path: str, word: AbstractWord) -> None:
    """Report a stored version of settings (`REV:PATH`) as secret if it, or another possible version, contains a
    login.
    """
    facts, revision = call.facts, text.partition(":")[0]
    kept = facts.tracked(GitSource(GitSourceKind.TREE, revision) if revision else GitSource(GitSourceKind.INDEX))
    relative = path[:1] == "." and path.startswith(("./", "../"))  # relative to a folder that may be any
    last = path.rpartition("/")[2]
    found = any(name == path or (relative and name.rpartition("/")[2] == last) for name in kept or ())
    if found or (kept is None and facts.login(f"{facts.workspace}/{path}")):
        call.findings.add_effect(EffectKind.READS, f"{facts.workspace}/{path}", Scope.SECRET)
        call.add_reason(Tier.SECRET, f"reads {path}, settings with a login", word)


def enter(call: Call, word: AbstractWord) -> State:
    """Return the state of a program that first changes to the folder `word`, which must exist."""
    call.access_path(Role.NAMES, word)
    state = call.state
    if not word.texts or (state.cwds is None and not all(text.startswith("/") for text in word.texts)):
        return state.with_cwds(None)
    absolute = call.findings.classifier.absolute
    return state.with_cwds(
        tuple(dict.fromkeys(absolute(text, cwd) for text in word.texts for cwd in state.cwds or ("/",)))
    )


def judge_bounded(call: Call, text: str, word: AbstractWord | None) -> None:
    """Judge a use of which the sandbox bounds the effects (see `Reason.bounded`), and the words that name paths."""
    call.bounded(text, word)
    scan(call, call.words, call.rule.tier)


def scan(call: Call, words: list[AbstractWord], tier: Tier) -> None:
    """Judge every word that looks like a path or a URL, without separating flags from operands."""
    for word in words:
        call.suspect(word)
        for text in word.texts:
            value = text.partition("=")[2] if text.startswith("-") else text
            if text.startswith("-") and "://" in text.partition("=")[0]:
                value = text.lstrip("-")  # `-ihttps://..`: the letters before the host do not count
            if (package := _SPECIFIED.match(value)) and call.label.split()[0] in _NODE_MANAGERS:
                if package[1] in _PLACES:
                    call.access_path(Role.READ, literal(package[2], word.span))
                elif host := _HOSTED.get(package[1], ""):
                    connect(call, literal(host, word.span))
            elif "://" in value or LOGIN.match(value):
                connect(call, literal(value, word.span))
            elif value.startswith(("/", "..")) or "/../" in value:
                role = Role.WRITE if tier in (Tier.WRITE, Tier.WRITE_OUTSIDE) else Role.READ
                call.access_path(role, literal(value, word.span))
            elif call.findings.classifier.secret_parts(value):
                call.access_path(Role.READ, literal(value, word.span))
