"""Shell builtins that change the folder or the options, test conditions, or run shell text."""

import re
from collections.abc import Callable

from policy.bash.ast import FILE_COMPARISONS, FILE_TESTS
from policy.interpreter.command_call import STANDARD_INPUT, Call
from policy.interpreter.judge_command import judge
from policy.interpreter.operand_roles import enter
from policy.interpreter.shell_state import ExitStates, State
from policy.interpreter.traps import Trap
from policy.model.abstract_word import ANYTHING, AbstractWord, literal
from policy.model.assessment import EffectKind, Scope
from policy.model.facts import Kind
from policy.model.frozen import replace
from policy.model.tier import Tier
from policy.rules.rule import Role

_SET_FLAGS = re.compile(r"[-+][abefmuvxCET]+|[-+][abefmuvxCET]*o")
_SET_NAMES = frozenset((
    "allexport", "errexit", "errtrace", "functrace", "monitor", "noclobber", "noglob", "notify", "nounset", "pipefail",
    "verbose", "xtrace",
))  # fmt: skip


def cd(call: Call) -> None:
    """Judge `cd`: determine the folder of the shell after success and after failure."""
    shape = call.parse()
    if shape.trouble or len(shape.operands) > 1:
        call.unknown(shape.trouble or "`cd` with more than one folder", shape.where)
        call.after = ExitStates.same(call.state.with_cwds(None))
        return
    call.add_rule_fact(Tier.READ)
    physical = any(flag.name == "-P" for flag, _ in shape.flags)
    call.shell.traps.folder_changed = True
    call.after = _change_folder(call, shape.operands[0] if shape.operands else None, physical=physical)


def _change_folder(call: Call, word: AbstractWord | None, *, physical: bool = False) -> ExitStates:
    state = call.state
    if word is None:
        word = literal(call.facts.home)
    if word.text == "-":
        return ExitStates(state.with_cwds(state.previous), state)
    call.access_path(Role.NAMES, word)
    if physical:
        return ExitStates(enter(call, word), state)
    if not word.texts or (state.cwds is None and not all(text.startswith("/") for text in word.texts)):
        return ExitStates(state.with_cwds(None), state)
    classifier = call.findings.classifier
    logical = [classifier.logical(text, cwd) for text in word.texts for cwd in state.cwds or ("/",)]
    success = state.with_cwds(tuple(dict.fromkeys(logical)))
    # `cd` cannot fail for an existing folder of the workspace if the script has deleted nothing before.
    certain = not call.findings.deleted and len(logical) == 1 and classifier.surely_folder(logical[0])
    return ExitStates(success, success if certain else state)


def pushd(call: Call) -> None:
    """Judge `pushd FOLDER`."""
    words = [word for word in call.words if word.text != "--"]
    if len(words) != 1 or words[0].text is None or words[0].text[:1] in ("-", "+"):
        call.unknown(f"`{call.label}` without exactly one folder")
        call.after = ExitStates.same(replace(call.state.with_cwds(None), stack=None))
        return
    call.add_rule_fact(Tier.READ)
    call.shell.traps.folder_changed = True
    ok, fail = _change_folder(call, words[0])
    stack = None if call.state.stack is None else (*call.state.stack, call.state.cwds)
    call.after = ExitStates(replace(ok, stack=stack), fail if fail is call.state else replace(ok, stack=stack))


def popd(call: Call) -> None:
    """Judge `popd` without arguments."""
    call.shell.traps.folder_changed = True
    if call.words:
        call.unknown(f"`{call.label}` with arguments")
    call.add_rule_fact(Tier.READ)
    stack = call.state.stack
    if stack is None:
        call.after = ExitStates(call.state.with_cwds(None), call.state)
    elif stack:
        call.after = ExitStates(replace(call.state.with_cwds(stack[-1]), stack=stack[:-1]), call.state)


def set_options(call: Call) -> None:
    """Judge `set`: only options that make a script stricter or more verbose are accepted."""
    words, arguments, exporting = list(call.words), call.state.arguments, call.state.allexport
    while words:
        word = words[0]
        if word.text == "--" or (word.text is not None and word.text[:1] not in ("-", "+")):
            arguments = tuple(words[1:] if word.text == "--" else words)
            break
        del words[0]
        if word.text == "-":
            arguments = tuple(words) or arguments
            break
        if word.text is None or not _SET_FLAGS.fullmatch(word.text):
            call.unknown("`set` changes a shell option that affects later commands", word)
            return
        if "a" in word.text:
            exporting = word.text[0] == "-"
        if word.text.endswith("o"):
            name = words.pop(0) if words else None
            if name is not None and name.text not in _SET_NAMES:
                call.unknown("`set -o` changes a shell option that affects later commands", name)
                return
            if name is not None and name.text == "allexport":
                exporting = word.text[0] == "-"
    call.accept(replace(call.state, arguments=arguments, allexport=exporting))


def shift(call: Call) -> None:
    """Judge `shift N`, which removes the first N arguments, or none if there are fewer than N."""
    count = call.words[0].text if call.words else "1"
    if len(call.words) > 1 or count is None or not count.isdigit():
        call.unknown(f"the argument of `{call.label}` is not one number", call.words[0])
    call.add_rule_fact(Tier.READ)
    state, number = call.state, int(count) if count is not None and count.isdigit() else 0
    arguments = state.arguments
    if arguments is None or any(word.may_split for word in arguments[:number]):
        arguments = None
    elif number <= len(arguments):
        arguments = arguments[number:]
    call.after = ExitStates.same(replace(state, arguments=arguments))


def trap(call: Call) -> None:
    """Judge `trap TEXT SIGNALS`: the text is parsed now, and interpreted at the end of the shell."""
    words = [word for word in call.words if word.text != "--"]
    call.add_rule_fact(Tier.READ)
    if not words or words[0].text in ("-p", "-l"):
        return
    if any(word.text is None for word in words):
        call.unknown("a trap known only at run time")
        return
    text, signals = words[0].text or "", [(word.text or "").upper().removeprefix("SIG") for word in words[1:]]
    if len(words) == 1 or text.startswith("-") or text.isdigit():
        if text[1:] or not set(signals) <= _SIGNALS:
            call.unknown("the arguments of `trap` are not understood", words[0])
        return  # resets the signals
    if not set(signals) <= _SIGNALS:
        call.unknown("a trap for an unknown signal", words[-1])
        return
    if text.strip():
        at_exit = set(signals) <= {"EXIT", "0"}
        call.shell.traps.add(
            Trap(text, call.state, words[0].span or call.span, call.rule.ref, at_exit, call.findings.file)
        )


_SIGNALS = frozenset(["EXIT", "0", "ERR", "DEBUG", "RETURN", "HUP", "INT", "QUIT", "TERM", "PIPE", "USR1", "USR2"])


def shopt(call: Call) -> None:
    """Judge `shopt`. The accepted options change which files a pattern matches, but not the folder of these files."""
    from policy.bash.objections import OFF_IN_SCRIPTS  # loaded with the parser

    certain = all(word.text is not None for word in call.words)
    names = _SHOPT if not certain or any(word.text == "-s" for word in call.words) else _SHOPT | OFF_IN_SCRIPTS
    for word in call.words:
        if word.text not in names:
            call.unknown("`shopt` changes a shell option that affects later commands", word)
            return
    call.add_rule_fact(Tier.READ)


_SHOPT = frozenset((
    "-s", "-u", "-q", "-p", "nullglob", "failglob", "globstar", "inherit_errexit", "nocasematch", "checkwinsize",
    "cmdhist", "histappend", "lithist", "huponexit", "checkjobs",
))  # fmt: skip


def umask(call: Call) -> None:
    """Judge `umask`. Fewer permissions for new files are harmless. Write permission for others is judged as a
    `chmod` of every later file.
    """
    shape = call.parse()
    if shape.trouble or len(shape.operands) > 1:
        call.unknown(shape.trouble or f"`{call.label}` with more than one mode", shape.where)
        return
    call.add_rule_fact(Tier.READ)
    if shape.operands and not _denies_others_write(shape.operands[0].text or ""):
        call.add_reason(Tier.WRITE, "lets every user change files created later", shape.operands[0])
        call.add_writes(Tier.WRITE)


def _denies_others_write(mode: str) -> bool:
    """Return True if `mode`, numeric or symbolic as in umask(1p), denies others write permission."""
    if _OCTAL_MODE.fullmatch(mode):
        return bool(int(mode, 8) & 0o002)
    clauses = [_SYMBOLIC_CLAUSE.fullmatch(clause) for clause in mode.split(",")]
    return all(
        clause is not None
        and (clause[2] == "-" or clause[1] in ("u", "g", "ug", "gu") or not set(clause[3]) & set("wug"))
        for clause in clauses
    )


_OCTAL_MODE = re.compile(r"[0-7]{1,4}", re.ASCII)
_SYMBOLIC_CLAUSE = re.compile(r"([ugoa]*)([-+=])([rwxXstugo]*)", re.ASCII)


def evaluate(call: Call) -> None:
    """Judge `eval`: its words are a script, interpreted in the current shell."""
    texts = [word.text for word in call.words]
    if texts[:1] == ["--"]:
        del texts[0]
    call.add_rule_fact(Tier.READ)
    call.note_download(call.frame.words_from_network)
    if None in texts:
        call.unknown("the script that `eval` runs is known only at run time")
        for text in (text for word in call.words for text in (*word.heads, *word.hints, word.head)):
            call.find_secrets(text)
        call.after = ExitStates.same(_state_after_unread_text(call))
        return
    script = " ".join(text for text in texts if text is not None)
    call.after = call.shell.run_text(script, call.state, call.frame, call.span, call.rule.ref)


def source(call: Call) -> None:
    """Judge `source FILE`: the commands of the file run in the current shell."""
    if not call.words:
        call.unknown(f"`{call.label}` without a file")
        return
    file, frame = call.words[0], call.frame
    script = file.output
    if script is None and file.text in STANDARD_INPUT and not frame.stdin_shared:
        script = frame.stdin_script
    if script is not None:
        _source_text(call, script)
        return
    paths = _files_of_source(call)
    own = not (call.state.functions or call.frame.depth)  # no function of the script may run inside the file
    call.runs(call.rule.why)
    if call.words[0].text != "/dev/fd/0":
        call.access_path(Role.READ, call.words[0])
    call.note_download(call.frame.words_from_network)
    if len(paths) == 1:
        call.after = _with_arguments(call, lambda begin: call.shell.run_file(paths[0], begin, call.frame, call.span))
    else:
        call.after = None
    if call.after is not None:
        return
    call.shell.file_in_doubt = True
    changed, cwds = call.shell.traps.folder_changed, call.state.cwds
    after = _state_after_unread_text(call)
    if own and paths and all(map(call.facts.keeps_folder, paths)):
        call.shell.traps.folder_changed = changed
        after = replace(after, cwds=cwds)
    call.after = ExitStates.same(after)


def _with_arguments(call: Call, run: Callable[[State], ExitStates | None]) -> ExitStates | None:
    """Return the states after `run`, which interprets the text of `source` from a state with the words as arguments."""
    arguments = tuple(call.words[1:])
    if not arguments:
        return run(call.state)
    ends = run(replace(call.state, arguments=None if call.frame.other_shell else arguments))
    # Bash restores the arguments of the script, unless the text sets them.
    return None if ends is None else ExitStates(*(replace(each, arguments=None) for each in ends))


def _files_of_source(call: Call) -> tuple[str, ...]:
    """Return the files of the workspace one of which `source` reads, as they are on the disk now; empty if unknown.

    It must be certain which file bash reads, and that no command of the script has written or run anything before. No
    trap of the script may run inside the file.
    """
    state, text, shell = call.state, call.words[0].text, call.shell
    if text is None or "/" not in text or state.cwds is None or call.frame.other_shell:
        return ()
    if shell.traps.pending or call.findings.loops:
        return ()  # a later round of a loop may read what the script writes after this command
    if call.frame.depth != call.frame.files or call.frame.files >= MOST_NESTED_FILES:
        return ()
    for effect in call.findings.effects:
        read = effect.kind is EffectKind.RUNS and effect.target in _SOURCE and not shell.file_in_doubt
        if effect.kind in _MAY_WRITE and not read:
            return ()
    places = [call.findings.classifier.place(text, cwd) for cwd in state.cwds]
    fixed = all(place.scope is Scope.WORKSPACE and place.kind is Kind.FILE for place in places)
    return tuple(dict.fromkeys(place.path for place in places)) if fixed else ()


MOST_NESTED_FILES = 3  # files that read each other with `source`
_SOURCE = frozenset([".", "source"])
_MAY_WRITE = frozenset(kind for kind in EffectKind if kind not in (EffectKind.READS, EffectKind.USES_LOOPBACK))


def _source_text(call: Call, script: str) -> None:
    """Judge `source` of a text that is certain: it is interpreted in the current shell."""
    call.add_rule_fact(Tier.READ)
    call.note_download(call.frame.words_from_network or call.frame.stdin_from_network)
    frame = replace(call.frame, stdin_script=None, stdin_texts=(), returns=[])

    def run(begin: State) -> ExitStates:
        return call.shell.run_text(script, begin, frame, call.span, call.rule.ref).or_early(frame.returns)

    call.after = _with_arguments(call, run)


def _state_after_unread_text(call: Call) -> State:
    """Return the state after shell text that was not analysed: the folder and all variables are unknown."""
    state = call.state
    call.shell.traps.folder_changed = True
    call.shell.variables.unread = True
    for name in state.variables:
        call.shell.traps.note_value(name, ANYTHING)
    return replace(state, cwds=None, variables={}, stack=None, previous=None, arguments=None)


def alias(call: Call) -> None:
    """Judge `alias` and `hash`. Without arguments they only list. Bash uses no alias in a script, other shells do."""
    if call.label in ("alias", "unalias") and not call.frame.other_shell:
        call.add_fact(Tier.READ, "changes aliases, which bash does not use in a script")
        return
    if call.label == "hash" and [word.text for word in call.words] == ["-r"]:
        call.add_rule_fact(Tier.READ)  # bash searches PATH again
        return
    if call.words:
        call.unknown(f"`{call.label}` with arguments changes the meaning of a command name", call.words[0])
        return
    judge(call)


_UNARY = FILE_TESTS | {"-n", "-z", "-t", "-o"}
_NUMERIC = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}
_BINARY = FILE_COMPARISONS | {"=", "==", "!=", "<", ">"} | _NUMERIC


def test(call: Call) -> None:
    """Judge `test` and `[`. Every operator must be literal, and every operand exactly one word."""
    words = list(call.words)
    if call.label == "[":
        if not words or words[-1].text != "]":
            call.unknown("`[` without `]`")
            return
        del words[-1]
    # Without one of its numbers, which may be missing, such a comparison is an error.
    comparison = len(words) == 3 and words[1].text in _NUMERIC
    if any(word.may_split and not (comparison and word.number) for word in words):
        call.unknown("a word known only at run time may become an operator of a condition")
        for word in words:
            call.suspect(word)
        return
    call.add_rule_fact(Tier.READ)
    if len(words) <= 1:
        return
    if len(words) == 3 and words[1].text in ("-a", "-o"):
        return  # `test X -a Y` and `test X -o Y` only test whether words are empty
    at = 0
    while at < len(words):
        while at < len(words) and words[at].text in ("!", "(") and not _binary_at(words, at):
            at += 1
        length = _judge_primary(call, words, at)
        at += length
        while length and at < len(words) and words[at].text == ")":
            at += 1
        where = words[at] if at < len(words) else None
        if length == 0 or (where is not None and where.text not in ("-a", "-o")):
            call.unknown(f"a condition of `{call.label}` that is not understood", where)
            return
        at += 1


def _binary_at(words: list[AbstractWord], at: int) -> bool:
    return at + 2 < len(words) and words[at + 1].text in _BINARY


def _judge_primary(call: Call, words: list[AbstractWord], at: int) -> int:
    """Judge one primary of a condition and return the number of its words, or 0 if it is not understood."""
    if _binary_at(words, at):
        if words[at + 1].text in FILE_COMPARISONS:
            call.access_path(Role.TREE, words[at])
            call.access_path(Role.TREE, words[at + 2])
        return 3
    if at + 1 < len(words) and words[at].text in _UNARY:
        if words[at].text in FILE_TESTS:
            call.access_path(Role.TREE, words[at + 1])
        return 2
    if at < len(words) and words[at].text is not None and words[at].text not in ("-v", "-R"):
        return 1
    return 0
