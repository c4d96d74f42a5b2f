"""The words of the command line, before a command parses them.

Options before a command are moved behind it, names that users of other agents type get their meaning, and a prompt
without a command is found:

    agent version, agent help [COMMAND]                  agent --version, agent [COMMAND] --help
    agent login, agent logout, agent chat                agent auth login, agent auth logout, agent
    agent -p "...", agent --print "..."                  agent run "..."
    agent --model X run "..."                            agent run --model X "..."
    agent "fix the bug"                                  a conversation that begins with this prompt

A single word is a prompt only after `--`, because it may be a misspelled command.
"""

from runner.cli.command_table import COMMANDS

_TAKES_OPTIONS = ("run", "ci", "repo", "web", "exec", "why", "acp")
_ALIASES = {
    "version": ("--version",),
    "login": ("auth", "login"),
    "logout": ("auth", "logout"),
    "chat": (),
}
_PRINT = ("-p", "--print")


def usual_words(words: list[str]) -> list[str]:
    """Return the command line with the names and the order of this program."""
    first = words[0] if words else ""
    if not words or first in COMMANDS:
        return words
    if first == "help":
        return [*words[1:], "--help"]
    if first in _ALIASES:
        return [*_ALIASES[first], *words[1:]]
    if not first.startswith("-"):
        return words
    count = _leading_options(words)
    options, rest = words[:count], words[count:]
    if rest[:1] and rest[0] in _PRINT:
        return ["run", *options, *rest[1:]]
    if rest[:1] and rest[0].startswith("--print="):
        return ["run", *options, rest[0].removeprefix("--print="), *rest[1:]]
    if options and rest and rest[0] in _TAKES_OPTIONS and _are_of(rest[0], options):
        return [rest[0], *options, *rest[1:]]
    return words


def split_prompt(words: list[str]) -> tuple[list[str], str | None]:
    """Return the options of a conversation and its first prompt; all words and None if the words contain no prompt.

    A prompt is one word with a blank in it, or one word after `--`.
    """
    if not words or words[0] in COMMANDS:
        return words, None
    before = _leading_options(words)
    marked = words[before : before + 1] == ["--"]
    place = before + marked
    if place >= len(words) or (not marked and (words[place] in COMMANDS or not _has_blank(words[place]))):
        return words, None
    after = words[place + 1 :]
    if (marked and after) or _leading_options(after) != len(after):
        return words, None
    return [*words[:before], *after], words[place]


def _has_blank(word: str) -> bool:
    return not word.startswith("-") and any(char.isspace() for char in word.strip())


def _leading_options(words: list[str]) -> int:
    """Return the number of words at the beginning that are options of `agent` with their values."""
    if not words:
        return 0
    from runner.agent.options import options_of

    known, at = options_of("agent"), 0
    while at < len(words):
        name, sign, _ = words[at].partition("=")
        if name not in known:
            return at
        takes = bool(known[name].metavar) and not sign
        if name == "--resume":
            takes = takes and words[at + 1 : at + 2] != [] and _is_session(words[at + 1])
        if takes and at + 1 >= len(words):
            return at
        at += 1 + takes
    return at


def _is_session(word: str) -> bool:
    return 4 <= len(word) <= 16 and set(word) <= set("0123456789abcdef")


def _are_of(command: str, options: list[str]) -> bool:
    """Return True if all `options`, which belong to `agent`, are options of `command` as well."""
    from runner.agent.options import options_of

    known, own = options_of("agent"), options_of(command)
    at = 0
    while at < len(options):
        name, sign, _ = options[at].partition("=")
        if name not in own or bool(known[name].metavar) != bool(own[name].metavar):
            return False
        at += 1
        if (
            known[name].metavar
            and not sign
            and (name != "--resume" or (at < len(options) and _is_session(options[at])))
        ):
            at += 1
    return True
