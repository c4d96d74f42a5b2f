"""The shell prefix of Claude Code: the program that Claude Code runs for each shell command, hook and tool server.

Claude Code passes one argument. For a command of its shell tool that is a script which loads a snapshot of the user's
shell, evaluates the quoted command and stores the working folder. For a hook it is the command line, and for a tool
server the quoted words.

THREAT T200: another hook replaces the rewritten command, or a version of the agent ignores it. Only a command with a
token runs as it is. A command of the user's own settings that is not in the form of the shell tool passes unchanged.
Everything else is judged here and runs in the sandbox, or not at all.
"""

import os
import sys

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping

    from policy.model.tier import Mode

AGENT = "claude"
# One word in the quoting of Claude Code: parts in single quotes, single quotes in double quotes, and plain characters.
_WORD = r"""(?:'[^']*'|"'"|[A-Za-z0-9_./:=@%+,-])+"""
_OWN = "put a hook or a tool server that you trust into your own settings of Claude Code (docs/guard.md)"
_REPLACED = "another hook may have replaced a command: `agent guard claude --status` shows it"
_SHELL_FORM = rf"(?s)(?:.*? && )??eval ({_WORD})(?: \\?< ?/dev/null)?(?: && pwd -P >\|? ?\S+)?"


def prefixed_words(words: list[str], environ: "Mapping[str, str]") -> list[str]:
    """Return the words of the command of this program that runs what Claude Code asks for in the sandbox.

    `words` are those after `guard shell`: the options, `--`, and the argument of Claude Code. A command of the user's
    own settings replaces this process. Raise Stopped for a command that is refused, and ValueError for other words.
    """
    from runner.frontends.guard.tokens import token_of

    mode, given = _options(words)
    script = shell_script(given)
    if script is None:
        from runner.frontends.guard.own_commands import own_command

        if (own := own_command(given, environ)) is not None:
            os.execvpe(own[0], own, dict(environ))  # noqa: S606  # the words that the user chose, without a shell
    if (parts := token_of(given if script is None else script)) is not None:
        return ["exec", "--guard-token", *parts]
    return _judged(given, mode, environ, _OWN) if script is None else _judged(script, mode, environ, _REPLACED)


def shell_script(given: str) -> str | None:
    """Return the script of the shell tool in the argument of Claude Code, or None if it has not the form of that tool.

    What surrounds the script is dropped: the sandbox has neither the snapshot of the shell nor the file for the folder.
    A part of the script that looks like the form cannot end it, because its quotes are quoted.
    """
    import re
    import shlex

    found = re.fullmatch(_SHELL_FORM, given)
    return shlex.split(found[1])[0] if found is not None else None


def _options(words: list[str]) -> tuple["Mode | None", str]:
    from policy.model.tier import Mode

    agent, *rest = words or [""]
    mode = None
    if rest[:1] == ["--mode"] and len(rest) > 1:
        mode, rest = Mode(rest[1]), rest[2:]
    if agent != AGENT or len(rest) != 2 or rest[0] != "--":
        raise ValueError("the shell prefix takes `claude`, `--mode MODE`, `--` and one argument of Claude Code")
    return mode, rest[1]


def _judged(script: str, mode: "Mode | None", environ: "Mapping[str, str]", fix: str) -> list[str]:
    """Return the words that run a script which passed no hook. Raise Stopped with `fix` if it is not allowed."""
    from policy.model.verdict import Problem
    from runner.frontends.guard.call import CallKind, GuardedCall
    from runner.frontends.guard.tokens import PREFIX_REFUSED, PREFIX_TOOL, GuardToken, issue, token_of
    from runner.frontends.guard.verdicts import judge
    from runner.problems import Exit, Stopped

    sys.argv[1:] = ["guard", "shell", AGENT]  # the record has the script once
    session = environ.get("CLAUDE_CODE_SESSION_ID", "")
    call = GuardedCall(AGENT, CallKind.SHELL, PREFIX_TOOL, session, "", os.getcwd(), script, input={"command": script})
    answer = judge(call, mode, None)
    parts = token_of(answer.rewritten)
    if parts is None:
        why = answer.reason.removeprefix("ringfence: ")
        spent = GuardToken(script, call.cwd, "", AGENT, session, "", PREFIX_REFUSED)
        issue(spent, environ, "used")  # the hook after the call does not report it as a call without the sandbox
        raise Stopped(Problem("this command passed no hook of ringfence and was not run", why, fix), Exit.DENIED)
    return ["exec", "--guard-token", *parts]
