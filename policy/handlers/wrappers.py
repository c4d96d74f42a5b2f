"""Programs whose arguments are another command: `env`, `xargs`, `command`, `exec`, `bash -c`."""

import re

from policy.interpreter.command_call import STANDARD_INPUT, Call
from policy.interpreter.operand_roles import apply, enter
from policy.model.abstract_word import ANYTHING, AbstractWord, literal, tokens
from policy.model.frozen import replace
from policy.model.tier import Tier
from policy.rules.rule import Role

_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_EMPTYING = frozenset(["-i", "-", "--ignore-environment"])
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def env(call: Call) -> None:
    """Judge `env [NAME=VALUE].. [COMMAND ..]`: the variables and the command."""
    shape = call.parse()
    if shape.trouble:
        call.unknown(shape.trouble, shape.where)
        return
    call.add_rule_fact(Tier.READ)
    for flag, value in shape.flags:
        if flag.role is Role.FOLDER and value is not None:
            call.state = enter(call, value)
    state, variables = call.state, call.shell.variables
    if any(flag.name in _EMPTYING for flag, _ in shape.flags):
        # Also the variables that keep a program from the network are gone.
        state = replace(state, exports=(*(entry.partition("=")[0] for entry in state.exports), "an empty environment"))
    for flag, value in shape.flags:
        if flag.name not in ("-u", "--unset") or value is None:
            continue
        if value.text is None or not _NAME.fullmatch(value.text):
            call.unknown("`env -u` with an uncertain variable name", value)
            return
        if any(entry.startswith(f"{value.text}=") for entry in state.exports):
            state = replace(state, exports=(*state.exports, value.text))  # the known value is gone
        state = variables.assign(state, value.text, ANYTHING, value.span or call.span)
    operands = list(shape.operands)
    while operands:
        text = operands[0].text if operands[0].text is not None else operands[0].head
        match = _ASSIGNMENT.fullmatch(text)
        if not match:
            break
        value = literal(match[2]) if operands[0].text is not None else ANYTHING
        state = variables.export(state, match[1], value, operands[0].span or call.span)
        del operands[0]
    if operands:
        call.run(operands, replace(state, variables=call.state.variables))


def command(call: Call) -> None:
    """Judge `command` and `builtin`, which run the named command; `command -v` only prints its location."""
    words = list(call.words)
    if call.label == "command" and words and words[0].text in ("-v", "-V"):
        call.add_fact(Tier.READ, "prints the location of a program", flag="-v")
        return
    if call.label == "command" and words and words[0].text == "-p":
        del words[0]
    if words and words[0].text == "--":
        del words[0]
    call.add_rule_fact(Tier.READ)
    if not words:
        return
    if words[0].text is not None and words[0].text.startswith("-"):
        call.unknown(f"`{words[0].text}` is not a known flag of `{call.label}`", words[0])
        return
    call.after = call.run(words)


def execute(call: Call) -> None:
    """Judge `exec COMMAND`. For `exec` with redirections only, the interpreter judges these."""
    call.add_rule_fact(Tier.READ)
    if not call.words:
        return
    if call.words[0].text is not None and call.words[0].text.startswith("-"):
        call.unknown(f"`exec {call.words[0].text}` changes how the program is started", call.words[0])
        return
    call.run(call.words)


def xargs(call: Call) -> None:
    """Judge `xargs COMMAND`: the command, with further words from data."""
    shape = call.parse()
    if shape.trouble:
        call.unknown(shape.trouble, shape.where)
        return
    call.add_rule_fact(Tier.READ)
    marker: str | None = None
    names = {flag.name for flag, _ in shape.flags}
    input_words = call.frame.stdin_words if names & _NUL_FLAGS and not names & _OTHER_INPUT_FLAGS else ()
    call.frame = replace(call.frame, stdin_words=(), stdin_script=None, in_shell=False)
    for flag, value in shape.flags:
        if flag.role is Role.READ and value is not None:
            apply(call, Role.READ, value)
        if flag.name in ("-I", "-i", "--replace"):
            marker = value.text if value is not None else "{}"
    words = list(shape.operands) or [literal("echo")]
    files = [value for flag, value in shape.flags if flag.name in ("-a", "--arg-file") and value is not None]
    hints = tokens([text for file in files for text in file.content] if files else call.frame.stdin_texts)
    for data in input_words or (replace(ANYTHING, hints=hints),):
        if marker is not None:
            call.run(with_data(words, marker, data))
        if marker is None or names & _COUNT_FLAGS:  # -I and a count flag: the later one cancels the earlier one
            call.run(with_data(words, None, replace(data, may_split=True)))


# Flags with which items end only at NUL, and flags with which items end elsewhere or come from a file.
_NUL_FLAGS = frozenset(["-0", "--null"])
_OTHER_INPUT_FLAGS = frozenset(["-d", "--delimiter", "-E", "-e", "--eof", "-a", "--arg-file"])

# Flags for the number of words or lines per command. If -I is also given, GNU xargs uses the later flag.
_COUNT_FLAGS = frozenset(["-n", "--max-args", "-L", "-l", "--max-lines"])


def with_data(
    words: list[AbstractWord], marker: str | None, data: AbstractWord = ANYTHING, *, several: bool = False
) -> list[AbstractWord]:
    """Return `words` with `data` in place of `marker`, or at the end if `marker` is None. If `several`, the data may
    become many words.

    The caller passes at least one word, so data at the end is never the program.
    """
    if marker is None:
        return [*words, data]
    result = []
    for word in words:
        has_marker = any(marker in text for text in word.texts) or (not word.texts and marker in word.head + word.tail)
        if not has_marker:
            result.append(word)
        elif word.text == marker:
            result.append(replace(data, may_split=several, span=word.span))
        else:
            head = word.text.partition(marker)[0] if word.text is not None else ""
            globbed = data.globbed and not head and word.text is not None and ".." not in word.text
            never_an_option = data.plain and head[:1] != "-"
            hints = tuple(word.text.replace(marker, each) for each in data.hints) if word.text is not None else ()
            head = head or data.head
            result.append(
                AbstractWord(head=head, globbed=globbed, never_an_option=never_an_option, hints=hints, span=word.span)
            )
    return result


_OPTION_NAME_FLAG = re.compile(r"[-+][eux]*o")
_LETTERS = re.compile(r"-[abefhilmnuvxlc]*c|-[euxlvs]+")
_PARSERS = frozenset(["bash", "dash", "sh"])  # zsh reads start-up files even with `-n`


def shell(call: Call) -> None:
    """Judge `sh` and `bash`. A script in an argument, or known text on the standard input, is interpreted; a script in
    a file is not.
    """
    words, text_next, input_next = list(call.words), False, False
    if len(words) > 1 and words[0].text == "-n" and call.label in _PARSERS and _is_file(words[1]):
        call.add_fact(Tier.READ, "checks the syntax of a script without running it", flag="-n")
        call.access_path(Role.READ, words[1])
        return
    while words and words[0].text is not None and words[0].text[:1] in ("-", "+") and len(words[0].text) > 1:
        flag = words[0].text
        if flag in ("--version", "--help"):
            call.add_fact(Tier.READ, "prints its version or help text", flag=flag)
            return
        if flag in ("--norc", "--noprofile", "--posix", "--"):
            del words[0]
            if flag == "--posix":
                call.reader = "sh"  # in this mode bash expands aliases, as `sh` does
            if flag == "--":
                break
            continue
        if _OPTION_NAME_FLAG.fullmatch(flag) and len(words) > 1 and words[1].text in ("pipefail", "errexit", "nounset"):
            del words[:2]
            continue
        if not _LETTERS.fullmatch(flag) or "i" in flag:
            call.unknown(f"`{call.label} {flag}` is not a known flag", words[0])
            return
        if "l" in flag:
            # The home of a sandbox has none of the user's start-up files.
            call.add_fact(Tier.READ, "runs the start-up files of the system", flag="-l")
        text_next = text_next or "c" in flag
        input_next = input_next or "s" in flag
        del words[0]
    if text_next:
        _judge_text(call, words)
    elif input_next or not words or (words[0].text == "-" and not words[1:]):
        _judge_input(call, tuple(words) if input_next else ())
    elif words[0].output is not None:
        _run_input(call, words[0].output, tuple(words[1:]))
        call.note_download(call.frame.words_from_network)
    elif words[0].text in STANDARD_INPUT:
        call.access_path(Role.READ, words[0])
        _judge_input(call, tuple(words[1:]))
    else:
        call.runs("runs a script that is not analysed")
        if words[0].text != "/dev/fd/0":
            call.access_path(Role.READ, words[0])
        call.note_download(call.frame.words_from_network)


def _judge_input(call: Call, arguments: tuple[AbstractWord, ...]) -> None:
    """Judge a shell that reads its script from the standard input. A text that is certain is interpreted like that of
    `bash -c`.

    The shell reads one command at a time, so commands that read the standard input take lines of the script away. What
    remains may mean something else, so such a script is also judged as code that is not read.
    """
    frame = call.frame
    script = frame.stdin_script
    if script is None or frame.stdin_shared or not _keeps_input(script):
        call.runs("runs commands from its standard input")
        for text in frame.stdin_texts:
            call.find_secrets(text)
    if script is not None:
        _run_input(call, script, arguments)
    call.note_download(frame.stdin_from_network)


def _run_input(call: Call, script: str, arguments: tuple[AbstractWord, ...]) -> None:
    call.add_rule_fact(Tier.READ)
    call.frame = replace(call.frame, stdin_script=None, stdin_texts=())
    call.run_script(script, replace(call.state, variables={}, stack=(), arguments=arguments), None)


# Commands that never read the standard input, and commands that do not read it if they have an operand.
_NO_INPUT = frozenset(
    ["echo", "printf", "true", "false", ":", "cd", "pwd", "test", "[", "ls", "date", "whoami", "id", "uname", "which"]
)
_OPERAND_INSTEAD = frozenset(["cat", "wc"])


def _keeps_input(script: str) -> bool:
    """Return True if no command of a script can read a later part of the script, which is on the standard input."""
    if "\n" not in script.strip("\n"):
        return True  # the shell has read all of it before the first command runs
    from policy.bash.ast import Command, Opaque, nodes
    from policy.bash.parser import read  # only for scripts of several lines

    tree = read(script)
    if isinstance(tree, Opaque):
        return False
    for node in nodes(tree):
        if isinstance(node, Command) and node.words and not _never_reads_input([word.literal for word in node.words]):
            return False
        if isinstance(node, Command) and not node.words and node.redirects:
            return False
    return True


def _never_reads_input(words: list[str | None]) -> bool:
    if words[0] in _OPERAND_INSTEAD:
        operands = [word for word in words[1:] if word is None or word[:1] != "-" or word == "-"]
        return bool(operands) and not any(word is None or word == "-" or word.startswith("/") for word in operands)
    return words[0] in _NO_INPUT


def _is_file(word: AbstractWord) -> bool:
    """Return True if the word is certainly a file and no flag: `+n` would undo `-n`. No flag contains a dot."""
    if word.texts:
        return all(text[:1] not in ("", "-", "+") for text in word.texts)
    return word.head[:1] not in ("", "-", "+") or (word.globbed and "." in word.tail)


def _judge_text(call: Call, words: list[AbstractWord]) -> None:
    if not words:
        call.unknown(f"`{call.label} -c` without a script")
        return
    if words[0].text is None:
        call.unknown(f"the script that `{call.label}` runs is known only at run time", words[0])
        for text in (*words[0].heads, *words[0].hints, words[0].head):
            call.find_secrets(text)
        call.note_download(call.frame.words_from_network)
        return
    call.add_fact(Tier.READ, call.rule.why, flag="-c")
    name, arguments = words[1:2], tuple(words[2:])
    known = not any(word.may_split for word in (words[0], *name))
    inner_state = replace(call.state, variables={"0": name[0]} if name and known else {}, stack=())
    inner_state = replace(inner_state, arguments=arguments if known else None)
    call.run_script(words[0].text, inner_state, words[0].span)
    if call.findings.worst < Tier.UNKNOWN:
        return
    for word in words[1:]:
        # A script that is not understood probably reads the files that its arguments name.
        for text in word.texts:
            if text.startswith(("/", "..")) or call.findings.classifier.secret_parts(text):
                call.access_path(Role.READ, literal(text, word.span))
