"""The handler of `tar`: list, extract and create, with an allowlist of flags."""

from policy.interpreter.command_call import Call
from policy.interpreter.operand_roles import apply, enter, judge_bounded
from policy.model.abstract_word import AbstractWord, literal
from policy.model.assessment import Consequence
from policy.model.tier import Tier
from policy.rules.rule import Role

# fmt: off
_SWITCHES = frozenset("vzjJpkmhaSO")
_LONG_SWITCHES = frozenset((
    "--verbose", "--gzip", "--gunzip", "--bzip2", "--xz", "--zstd", "--lzma", "--auto-compress", "--full-time", "--utc",
    "--keep-old-files", "--touch", "--no-same-owner", "--no-same-permissions", "--preserve-permissions", "--wildcards",
    "--to-stdout", "--numeric-owner", "--no-recursion", "--show-transformed-names", "--dereference",
    "--one-file-system", "--exclude-vcs", "--exclude-vcs-ignores", "--exclude-backups", "--exclude-caches", "--sparse",
    "--xattrs", "--no-xattrs", "--acls", "--no-acls", "--selinux", "--no-selinux", "--same-owner", "--overwrite",
    "--same-permissions", "--skip-old-files", "--keep-newer-files", "--totals", "--posix", "--anchored",
    "--no-anchored", "--no-wildcards", "--ignore-case", "--ignore-failed-read", "--delay-directory-restore",
    "--compress", "--lzip",
))
# No expression of `--transform` runs or names a file of its own: the names that it makes are below the folder.
_LONG_DATA = frozenset((
    "--exclude", "--strip-components", "--mtime", "--owner", "--group", "--sort", "--transform", "--xform", "--format",
    "--mode", "--newer", "--newer-mtime", "--blocking-factor",
))
# fmt: on
_PROGRAMS = frozenset(["--use-compress-program", "--use-compress"])
_MODES = {"--list": "t", "--extract": "x", "--get": "x", "--create": "c"}


def tar(call: Call) -> None:
    """Judge `tar`. Any other mode than list, extract or create, and any unlisted flag, is unknown."""
    words = list(call.words)
    if [word.text for word in words] in (["--version"], ["--help"]):
        call.add_fact(Tier.READ, "prints its version or help text")
        return
    mode, archive, operands, state = "", None, list[AbstractWord](), call.state
    first, stdout = True, False
    programs: list[AbstractWord] = []
    while words:
        word = words.pop(0)
        text = word.text
        if text is None:
            if not word.plain or (word.may_split and not word.head):
                judge_bounded(call, "a word known only at run time may become a flag of `tar`", word)
                return
            operands.append(word)
        elif text == "--":
            operands += words
            break
        elif text.startswith("--"):
            name, equals, value = text.partition("=")
            if name in _MODES and not equals:
                mode += _MODES[name]
            elif name in _LONG_SWITCHES and not equals:
                stdout = stdout or name == "--to-stdout"
            elif name in ("--file", "--directory") or name in _LONG_DATA or name in _PROGRAMS:
                if not equals and not words:
                    break
                argument = AbstractWord(texts=(value,), span=word.span) if equals else words.pop(0)
                if name == "--file":
                    archive = argument
                elif name == "--directory":
                    call.state = enter(call, argument)
                elif name in _PROGRAMS:
                    programs.append(argument)
            else:
                call.unknown(f"`{name}` is not a known flag of `tar`", word)
                return
        elif (text.startswith("-") and len(text) > 1) or first:
            for at, letter in enumerate(letters := text.lstrip("-"), 1):
                if letter in "txc":
                    mode += letter
                elif letter in ("f", "C", "I") and (words or (text.startswith("-") and letters[at:])):
                    # With a dash, the rest of the cluster is the value; without, the next words are the values.
                    attached = text.startswith("-") and letters[at:]
                    argument = literal(letters[at:], word.span) if attached else words.pop(0)
                    if letter == "f":
                        archive = argument
                    elif letter == "C":
                        call.state = enter(call, argument)
                    else:
                        programs.append(argument)
                    if attached:
                        break
                elif letter in _SWITCHES:
                    stdout = stdout or letter == "O"
                else:
                    call.unknown(f"`-{letter}` is not a known flag of `tar`", word)
                    return
        else:
            operands.append(word)
        first = False
    new_state, call.state = call.state, state
    if len(mode) != 1:
        call.unknown("`tar` without exactly one mode (list, extract or create)")
        return
    is_new = archive is not None and mode == "c" and archive.globbed and archive.plain and ":" not in archive.head
    if archive is not None and not is_new and (archive.text is None or ":" in archive.text):
        call.unknown("`tar` with an archive known only at run time, or on another machine", archive)
        return
    call.add_rule_fact(Tier.READ)
    for program in programs:
        apply(call, Role.SCRIPT, program)  # tar adds `-d` when it extracts
        call.runs("packs with a program", program, flag="-I", consequence=Consequence.STARTS_PROGRAMS)
    if archive is not None and archive.text != "-":
        call.access_path(Role.WRITE if mode == "c" else Role.READ, archive)
    call.state = new_state
    if mode == "c":
        for operand in operands:
            call.access_path(Role.READ, operand)
    elif mode == "x" and not stdout:
        call.access_path(Role.WRITE, AbstractWord(head="./", globbed=True, subset=True))
