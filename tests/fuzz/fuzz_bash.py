"""Real bash as the judge of the reader: what bash ran, read or created must be in the tree of the text it was given.

The differential test drives this module for a moment; `python tests/fuzz/fuzz_bash.py --seconds 600` drives it for long.
`--corpus FILE` (JSON lines with a `cmd`) adds real command lines to what is mutated. Exit status 1 means: a law broke.

Scripts run in a throw-away folder with no program on PATH. Every program name that bash looks up reaches
`command_not_found_handle`, which records its words (and its input, or variables, when the script asks for that).
"""

import argparse
import dataclasses
import functools
import importlib.resources
import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from policy.bash.ast import (
    ArithmeticAssignment,
    ArrayAssignment,
    Assignment,
    Command,
    Expansion,
    Glob,
    Opaque,
    Parameter,
    Pipeline,
    Redirect,
    RedirectOp,
    Script,
    Substitution,
    Text,
    Word,
)
from policy.bash.crosscheck import find_disagreement
from policy.bash.parser import read
from policy.handlers import grammar
from policy.interpreter.interpreter import Interpreter
from policy.interpreter.path_classifier import TooMuchError
from policy.interpreter.shell_interpreter import ShellInterpreter
from policy.interpreter.shell_state import CommandResult, ExpandedCommand, State
from policy.model.abstract_word import AbstractWord
from policy.model.assessment import Effect, EffectKind
from policy.model.facts import Facts, Kind, PathFact, ShellText
from policy.model.profile import Profile
from policy.model.tier import Tier
from policy.rules.rulebook import RuleBook
from policy.toml.profile import parse_profile

# `slurp` records its standard input, `show` the variables x and y. The status is a coin, so that loops end.
HANDLER = r"""() {
    { printf 'argv\0%d\0' "$#"; printf '%s\0' "$@"
      case $1 in
      slurp) local IFS= REPLY; read -r -d '' REPLY; printf 'input\0001\000%s\0' "$REPLY";;
      show) printf 'x\0001\000%s\0' "$x"; printf 'y\0001\000%s\0' "$y";;
      esac
    } >> "$RECORD/$BASHPID"
    return $((BASHPID % 2))
}"""
NOBODY = 65534
# The file of the workspace that scripts read with `. ./lib`.
LIBRARY = """lf() { aa lf "$1"; }
lg() { x=g; cc $x "$@" >lg_out; }
lh() { local y=h; lf "$x$y"; return; bb never; }
y=lib
dd "$#"
"""
WRITES = frozenset(
    (
        RedirectOp.OUT,
        RedirectOp.APPEND,
        RedirectOp.CLOBBER,
        RedirectOp.READ_WRITE,
        RedirectOp.OUT_ERR,
        RedirectOp.APPEND_ERR,
    )
)


@dataclasses.dataclass(frozen=True)
class Seen:
    """The observed effects of one run of bash."""

    argvs: tuple[tuple[str, ...], ...]
    inputs: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    created: tuple[str, ...]
    finished: bool


class Bash:
    """Runs scripts in a folder of its own; use as a context manager.

    With `patience`, a script is killed after so many seconds. The tests set no limit: each of their scripts ends.
    """

    def __init__(self, patience: float | None = None) -> None:
        self._patience = patience

    def __enter__(self) -> "Bash":
        self.root = Path(tempfile.mkdtemp(prefix="judge-"))
        self.work, self.record, self.home = (self.root / name for name in ("work", "record", "home"))
        self.user = NOBODY if os.geteuid() == 0 else None
        for folder in (self.root, self.work, self.record, self.home):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o700)
            if self.user is not None:
                os.chown(folder, NOBODY, NOBODY)
        self._lay_out()
        self.program = shutil.which("bash") or "/bin/bash"
        self.environment = {
            "PATH": "/nonexistent",
            "TMPDIR": "/tmp",
            "HOME": str(self.home),
            "RECORD": str(self.record),
            "LC_ALL": "C.UTF-8",
            "BASH_FUNC_command_not_found_handle%%": HANDLER,
        }
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def _lay_out(self) -> None:
        for entry in self.work.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        for name in ("a1", "b 2", "c.txt"):
            (self.work / name).write_text("seed\n")
        (self.work / "lib").write_text(LIBRARY)
        for name in ("a1", "b 2", "c.txt", "lib"):
            os.utime(self.work / name, ns=(1, 1))
            if self.user is not None:
                os.chown(self.work / name, NOBODY, NOBODY)
        self.clean = self._listing()

    def _listing(self) -> dict[str, tuple[int, int]]:
        found = {}
        for entry in self.work.rglob("*"):
            status = entry.lstat()
            found[str(entry.relative_to(self.work))] = (status.st_size, status.st_mtime_ns)
        return found

    def valid(self, script: str) -> bool:
        """Return True if bash reads the text without any message."""
        done = subprocess.run(
            [self.program, "--norc", "--noprofile", "-n", "-c", script],
            env=self.environment,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return done.returncode == 0 and not done.stderr

    def run(self, script: str) -> Seen:
        reading, writing = os.pipe()
        child = subprocess.Popen(
            [self.program, "--norc", "--noprofile", "-c", script],
            env=self.environment,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writing,),
            start_new_session=True,
            user=self.user,
            group=self.user,
            extra_groups=[] if self.user is not None else None,
        )
        os.close(writing)
        # Every process that the script started holds the pipe, background jobs too.
        finished = bool(select.select([reading], [], [], self._patience)[0])
        if not finished:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        os.close(reading)
        return self._collect(finished)

    def _collect(self, finished: bool) -> Seen:
        argvs, inputs, variables = [], [], []
        for file in self.record.iterdir():
            fields = file.read_bytes().decode("utf-8", "surrogateescape").split("\0")
            file.unlink()
            at = 0
            while at + 1 < len(fields):
                kind, count = fields[at], int(fields[at + 1])
                values = tuple(fields[at + 2 : at + 2 + count])
                at += 2 + count
                if at >= len(fields):
                    break  # it was stopped while it wrote this
                if kind == "argv":
                    argvs.append(values)
                elif kind == "input":
                    inputs.append(values[0])
                else:
                    variables.append((kind, values[0]))
        now = self._listing()
        created = tuple(sorted(name for name in now if self.clean.get(name) != now[name]))
        if created or len(now) != len(self.clean):
            self._lay_out()
        return Seen(tuple(argvs), tuple(inputs), tuple(variables), created, finished)


def nodes(value: object) -> Iterator[object]:
    """Every dataclass value below `value`: knows nothing of the tree, so it can forget nothing of it."""
    if isinstance(value, tuple):
        for item in value:
            yield from nodes(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield value
        for field in dataclasses.fields(value):
            yield from nodes(getattr(value, field.name))


def pattern(word: Word) -> str:
    """Return a regular expression for the text of the word, read as one word."""
    return "".join(re.escape(part.text) if isinstance(part, Text) else "[^\\x00]*" for part in word.parts)


def splits(word: Word) -> bool:
    """Return True if the word may become any number of words."""
    return any(
        isinstance(part, Glob)
        or (
            isinstance(part, Parameter)
            and not part.length
            and (not part.quoted or part.name in "@*" or part.subscript == "@")
        )
        or (isinstance(part, Expansion) and (not part.quoted or part.name in "@*" or part.subscript == "@"))
        or (isinstance(part, Substitution) and not part.quoted)
        for part in word.parts
    )


def broken(tree: Script, seen: Seen) -> list[str]:
    """The laws that this run of bash broke, in words."""
    everything = list(nodes(tree))
    written = [node.words for node in everything if isinstance(node, Command) and node.words]
    written += [words[1:] for words in written if words[0].literal == "command" and len(words) > 1]
    commands = [
        re.compile("".join("(?:[^\\x00]*\\0)*" if splits(word) else pattern(word) + "\\x00" for word in words), re.S)
        for words in written
    ]
    redirects = [node for node in everything if isinstance(node, Redirect)]
    faults = []
    # Of a text that is evaluated, only the walk knows the commands.
    evaluates = any(words[0].literal in ("eval", "trap", ".") for words in written)
    for argv in seen.argvs:
        line = "".join(word + "\0" for word in argv)
        if not evaluates and not any(command.fullmatch(line) for command in commands):
            faults.append(f"bash ran {argv!r}")
    targets = [re.compile(pattern(node.target), re.S) for node in redirects if node.op in WRITES]
    for name in seen.created:
        spelled = (name, f"./{name}", Path(name).name)
        if not evaluates and not any(target.fullmatch(each) for target in targets for each in spelled):
            faults.append(f"bash created {name!r}")
    bodies = [
        re.compile(pattern(node.target) + ("\n" if node.op is RedirectOp.HERE_STRING else ""), re.S)
        for node in redirects
        if node.op in (RedirectOp.HERE_DOC, RedirectOp.HERE_STRING)
    ]
    piped = any(isinstance(node, (Pipeline, Substitution)) for node in everything)
    if len(redirects) == len(bodies) and not piped:
        for text in seen.inputs:
            if text and not any(body.fullmatch(text) for body in bodies):
                faults.append(f"bash fed {text!r}")
    for name, value in seen.variables:
        values = [
            re.compile(pattern(node.value), re.S)
            for node in everything
            if isinstance(node, Assignment) and node.name == name
        ]
        appends = any(
            (isinstance(node, Assignment) and node.append)
            or isinstance(node, ArithmeticAssignment)
            or (isinstance(node, ArrayAssignment) and node.index is not None)
            or (isinstance(node, Redirect) and node.variable == name)
            for node in everything
        )
        if value and values and not appends and not any(found.fullmatch(value) for found in values):
            faults.append(f"bash set {name}={value!r}")
    return faults


# -- what the words may become ------------------------------------------------------------------------------------


class ListeningShell(ShellInterpreter):
    """A shell that remembers the words of every command that it expanded."""

    commands_seen: list[list[AbstractWord]]

    def _ready(self, command: ExpandedCommand, *rest: Any, **named: Any) -> CommandResult:
        self.commands_seen.append(command.words)
        return super()._ready(command, *rest, **named)


class Listener(Interpreter):
    """An interpreter that remembers the words of every command that it judged."""

    commands_seen: list[list[AbstractWord]]

    @functools.cached_property
    def shell(self) -> ListeningShell:
        shell = ListeningShell(self.rules, self.findings, self.simple)
        shell.commands_seen = self.commands_seen
        return shell

    def simple(self, command: ExpandedCommand) -> CommandResult:
        # Of `command $x` the name is known only at run time, and the interpreter reports that.
        self.commands_seen.append(command.words)
        return super().simple(command)

    def program(self, name: str, command: ExpandedCommand) -> CommandResult:
        self.commands_seen.append([AbstractWord(texts=(name,)), *command.words[1:]])
        return super().program(name, command)


@functools.lru_cache(maxsize=1)
def settings() -> tuple[RuleBook, Profile]:
    commands = (importlib.resources.files("policy") / "commands").iterdir()
    book = RuleBook({item.name: item.read_text() for item in commands if item.name.endswith(".toml")})
    text = (importlib.resources.files("profiles") / "default.toml").read_text()
    return book, parse_profile(text, "default.toml")


# Reasons after which the words are not certain. An unknown program, or a path known only at run time, is no such
# reason.
_DOUBT = re.compile(
    r"command:shell:|bash evaluates|bash ends the line|calls itself|called too often|sets [A-Z]+, which"
)


@dataclasses.dataclass(frozen=True)
class Meaning:
    """The words of each command, and the write effects of the script, according to the classifier."""

    commands: list[list[AbstractWord]]
    writes: tuple[Effect, ...]


def meanings(bash: Bash, tree: Script) -> Meaning | None:
    """Return the reading of the classifier for the folder in which bash will run, or None if it is not certain."""

    def look(path: str) -> PathFact:
        real = os.path.realpath(path)
        exists = os.path.exists(real)
        return PathFact(real, Kind.FOLDER if os.path.isdir(real) else Kind.FILE if exists else Kind.MISSING)

    book, profile = settings()
    work, home = str(bash.work), str(bash.home)

    def shell_text(path: str) -> ShellText | None:
        library = bash.work / "lib"
        return ShellText(LIBRARY, "0" * 64) if path == str(library) and library.read_text() == LIBRARY else None

    facts = Facts(work, home, (), (), (), look, lambda name: None, shell_text=shell_text)
    walk = Listener(facts, book, profile, grammar)
    walk.commands_seen = []
    try:
        walk.shell.run(tree, State((work,), arguments=()))
    except TooMuchError:
        return None  # the classifier asks about such a script
    if walk.shell.file_in_doubt:
        return None  # a file was read that a command before may have changed, for example: nothing is known after it
    if any(
        reason.tier is Tier.UNKNOWN and _DOUBT.search(f"{reason.rule} {reason.text}")
        for reason in walk.findings.reasons
    ):
        return None
    said = "redirects to a path known only at run time"
    writes = (each for each in walk.findings.effects if each.kind is EffectKind.WRITES or each.target == said)
    return Meaning(walk.commands_seen, tuple(writes))


def allowed(sense: AbstractWord) -> str:
    """Return a regular expression for the possible values of one word, each value ending in NUL."""
    if sense.texts:
        return f"(?:{'|'.join(map(re.escape, sense.texts))})\\x00"
    calm = "(?!-)" if sense.never_an_option else ""
    if sense.may_split:
        return f"(?:{calm}{re.escape(sense.head) if sense.globbed else ''}[^\\x00]*\\x00)*"
    return f"{calm}(?={re.escape(sense.head)})(?:[^\\x00]*(?<={re.escape(sense.tail)}))\\x00"


def unannounced(bash: Bash, meaning: Meaning, seen: Seen) -> list[str]:
    """Files that bash opened for writing, and that are not among the effects."""
    faults = []
    for name in seen.created:
        path = str(bash.work / name)
        if not any(
            each.target == path or not each.target.startswith("/") or (not each.exact and path.startswith(each.target))
            for each in meaning.writes
        ):
            faults.append(f"bash wrote {name!r}, which the classifier did not expect")
    return faults


def surprises(meaning: Meaning, seen: Seen) -> list[str]:
    """Commands that bash ran with words other than the classifier took them for."""
    expected = [re.compile("".join(map(allowed, words)), re.S) for words in meaning.commands if words]
    # The number of the pipe of a process substitution is known only at run time.
    lines = {re.sub("/dev/fd/[0-9]+", "/dev/fd/0", "".join(word + "\0" for word in argv)): argv for argv in seen.argvs}
    return [
        f"bash ran {argv!r}, which the classifier did not expect"
        for line, argv in lines.items()
        if not any(pattern.fullmatch(line) for pattern in expected)
    ]


# -- what to try -------------------------------------------------------------------------------------------------

# fmt: off
ATOMS = (
    "aa", "bb", "cc", "dd", "-n", "--o=x", "a.b/c", "x=1", "2", "a#b", "a!", "!", "^x", "%s", "@", "a@b", "=", "a:b",
    "'q r'", "''", '""', '"q r"', "'a'\\''b'", '"a"\'b\'', "a'b'c", 'a"b\'c"d', "a'b\"c'd", '"a\\nb"',
    '"\\a\\$\\`\\"\\\\"', "\\a", "\\ ", "\\'", "\\$x", "\\`", "\\#", "\\~", "\\{a,b}", "$'\\x2d\\x6f'", "$'\\t\\''",
    "$'a\\\\b'", "$'\\101\\cg'", '$"q r"', '$"$x"', "$x", "${x}", '"$x"', '"${x}y"', "${#x}", '"${#x}"', "$1", "$10",
    "$#", "$?", '"$@"', '"$*"', "$$", "$-", "$(aa)", '"$(bb cc)"', "`cc`", '"`dd aa`"', "a$(bb)c", "$(aa; bb)", "$(case a in a) aa;; esac)", "$(case a in b|a) aa\n;; esac)", '"$(case x in (x) aa;; y) bb;; esac)"', "`case a in a) aa;; esac`", "$(case a in *) aa; esac)",
    "$(aa\nbb)", "$( (aa) )", "$(aa # x )\n)", "$(<a1)", "<(aa)", ">(bb)", '""<(cc)', "a$", '"$"', "$/", "$.", '"a$"',
    "$x$y", "$x'y'", "${x}[1]", "*", "?", "*.txt", "[ab]*", "a[", "[", "]", "[]", "[!a]", "a[1]", '"*"', "\\*",
    "'[a]'", "a1*", "[\"a\"b]", "a[!]1]", "a[1]]", "a[$x]", "a[1-9]", "[[:alpha:]]1", "a[a[1]", "a[b1", "a[\\1]",
    "a[1", "[^b]1", "[a]?", "a[/]1", "*1", "?1", "[", "a['1']", "~", "~/a", "~root", "~nobody/x", "a~", "~$x", "~'a'", "a=~", "a:~", "x=a:~", "HEAD~1",
    "~+", "~x$(aa)", "{}", "{a}", "{a,b}", "x{a,b}y", "{a,b}{1..3}", "{3..-1}", "{a..b,c}", "{01..3}", "{,a}", "b{,a}",
    "--x={a,b}", "{a,b}*", "{a,{b,c}}", "{a,b}}", "{{a,b}", "{a,b},c", "{a,b}$x", "{1..3..2}", "{a..c}", "{a,'b'}",
    "f{,.bak}", "x={a,b}", "{if,a}", "{1..2}{a,b}{,c}", "{-1..1}", "{a,=}", "{-,a}", "{a,}", "{1..3}", "a{b", "}",
    "{a,$(bb)}", "@{u}", "a{,}", "{a..", "${x:-$(pwn)}", "$((1+2))", "$[1]", "$((x))", '"$((2*(3-1)))"', "$((1 ? 2 : 3))", "$(($#+${#x}))", "$((RANDOM))", "$((1)+(2))",
    "$((1+$(aa)))", "$((x[$(aa)]))", "$((-1))", "a$((08))", "$((aa))", "$((aa) )", "$( (aa))", "$((1 < 2))", "$((1<(2)))", "${!x}", "${x@P}", "${x#a}",
    "${x:-aa}", "${x-$(aa)}", '"${x:-$(bb cc)}"', "${x:+aa}", '"${x+`aa`}"', "${x:?aa}", '"${x?a b}"', "${x:-}", "${x:-a b}",
    "${x:-'a b'}", '${x:-"a b"}', '${x:-"$(aa)" b}', "${x:-~/a}", "${x:-*}", '"${x:-*}"', "${x:-${y:-$(aa)}}", '"${x:-${y-b}}"',
    "${x:-<(aa)}", '"${x:-<(aa)}"', '"${x:-a\'b}"', '"${x:-"a"}"', "${x:-a}b}", "${x:-\\}}", "${x:=aa}", "${x:-{a,b}}", "${x##*/}",
    '"${x##*/}"', "${x#a}", '"${x#"$y"}"', "${x#$(aa)}", '"${x%$(aa)}"', "${x%%[a-z]*}", "${x%'}'}", "${x%\\}}", "${x/a/b}", "${x//a/$(bb)}",
    '"${x//\\//_}"', "${x/#a/b}", "${x/%a}", "${x// /_}", "${x/\"a\"/b}", "${x/$(aa)/$(bb)}", "${x/a/<(bb)}", "${x//$'\\n'/ }",
    '"${x//$\'\\n\'/ }"', "${x^}", "${x^^}", "${x,}", "${x,,}", "${x^^a}", "${x~}", "${x:1}", "${x:0:2}", "${x: -1}", "${x:0:-1}",
    "${x:-1}", "${x:y}", "${x:$(aa)}", "${@:1}", '"${@:1:2}"', "${1:-$(aa)}", "${1#a}", "${#x:-a}", "${x:-a#b}", '"${x:-# b}"', '"${x:-(b)}"',
    '"${x:-a;b|c&d}"', "${x:-(b)}", "${x:-a;bb}", "${x:-!}", "${x:-$y}", "${x:-$}", "${x:-$'a'}", '${x:-$"a"}', "${x:-a\nb}", "${!x:-a}",
    "${x:-\"$(aa '}')\"}", "${x:-$(aa })}", '"${x:-`aa`}"', "${x:-`aa }`}", "a${x:-b}c", "${x:-a}$(aa)",
    "${x[@]}", '"${x[@]}"', '"${x[*]}"', "${#x[@]}", "${x[0]}", "${x[1]:-$(aa)}", "${x[$(aa)]}", "${x[y]}", "${!x[@]}", '"${x[@]%a}"',
    "@(a|b)", "^(a|b)$", "^[0-9]+$", "a|b", "(a)", "[[:alpha:]]+", "!", "\\.py$", "*.txt", "[a-c]*", "-f", "-v", "]]", "<", "=~", "((", "))",
    "'$(pwn)'", "\"\\$(pwn)\"", "'`pwn`'", "\\$(pwn)", "é", "'é b'", "if", "then", "do", "done", "fi", "in", "for",
    "time", "[[", "function", "case", "esac", "{", "!a", "#c", "a\\\nb", "\\\n",
    "{a..e}", "{e..a..2}", "{01..3}", "{-01..2}", "{1..9..4}", "{a..C}", "{$x,b}", "{${x},b}", "${x}{a,b}", '"$x"{a,b}', "{'a b',c}", '{"$x",\\,}', "a{b,{c,d}e}f", "{a*,?}",
    "--x=~/a", "-x=a:~", "a.b=~", "x+=~", "y=~/a", "y=~$(aa)", "--x=~`aa`", "x=~/a:~", "x=~/{a,b}", "z=~nobody", "${x:y:1}", '"${x:$y}"', "${x:$((1+1)):$#}", "${x:${#y}-1}", "${x: -$y}", "${x[$y]}", '"${x[y+1]}"', "${x[$((y))]}", '"${x[@]:1}"', '"${x[@]:$y:1}"', "${x[*]:1}", "${@:$y}", "${!x}", '"${!x}"', "${!1}", "${x:y?1:2}", "${x[$(aa)]}", "${x:y[1]}",
    "${m[k]}", '"${m[$x]}"', '"${m[a.b]:-z}"', "${m[\"k\"]}", '"${m[\'k\']}"', "${m[$x$y]}", "${m[$(pwn)]}", '"${m[`pwn`]}"', "${!m[@]}", '"${!m[*]}"', "${m[k k]}", "${m[@]:-a}", "${#m[k]}", "${m[k]#a}", '"${m[y+1]/a/b}"', "${m[]}", "${m[01]}",
    '"${x%\\"}"', "${x#*\\\"}", '"${x#\\#}"', '"${x//\\$/_}"', "${x//\\\\/-}", '"${x/\\\\a/b}"', '"${x/#\\~/$y}"', '"${x%\\:*}"', '"${x:-"a b"}"', '"${x:-"a"b}"', '"${x:+"c"}"', '"${x:-"$y"}"', '"${x-""}"', '"${x%\\}"', "${m[a]b]}",
    "`aa 'b\\\\c'`", "`bb 'a\\$x\\.'`", '"`aa "b c"`"', '"`aa "$x" \'$(pwn)\'`"', "`aa \\$x`", "`aa \\\\$x`", '`aa "\\$x"`', "`aa \\.b\\ c`", "`aa 'b\\\nc'`", "`aa \\\n b`", '"`aa \\"b\\"`"',
    "`aa \\`bb\\``", "`aa $(bb 'c\\\\d')`", "`aa '\\`'`", '"`aa \'\\\\"\'`"', "`aa $'\\n' b\\\\`", "$'\\0'", "$'\\.\\$x'", "$'a\\000b'", "$'\\`'",
    "\"a$'b\"", '"a$\\|b"', '"$\\$x"', '"$\\\\$(aa)"', "a$\\x", '"a\\\nb"', '"$x\\\ny"', '"${x}\\\n$(aa)"', '"$\\\nx"', "--x=a\\\nb", "'a'\\\n\"b\"", "a\\\n ",
    "\"$'$(aa)'\"", "a\\\n\\\nb", "-\\\no", "a\\\n\n", "$x\\\n ", '"a\\\\\nb"',
    "~/{a,b}", "{[ab],c}", "{[a,b]}", "{a,}$y", "$x{,1}", "{,''}", "${x[-1]}", '"${x[-1]:-a}"',
)
SIMPLE = ("aa", "bb x", "cc -a 'b c'", "dd", "show", "slurp", "true", "false", ":", "echo a", "x=1", "y=2", "x=a show")
ASSIGN = (
    "x=", "x=1", "y='a b'", 'x="$y"', "x=$(aa)", "x=~", "x=~/a:b", "y=*", "x=a[1]", "x=`bb`", "x+=c", "y={a,b}",
    "x=$y", "x=a\\ b", "x=$'a\\nb'", "x=<(aa)", "a[1]=x", "x[0]=a", "y[1]='a b'", "x[$y]=c", "x[y+1]=$x", "x[${#y[@]}]=~", "x[1]+=b", "x[$(aa)]=1", "x[-1]=a", "y[2]=*", "x['1']=a", "x=(a b)", "x=()", "x=($(aa) 'b c')", "x+=(a)", "x=([0]=a)", "declare -A m; m[k]=v", "declare -gA m; m[$1]=a", "unset m", "declare -rA m=([k]=b)", "declare -A m=([k]='v w' [a.b]=$x)", "m=([k]=1 [$x]=2 b)", "m[k.l]=1", "m[\"k\"]=$y", "m['a']+=b", "x=([1]=a [0]='b c' d)", "x=([$y]=~ [1]=*)", "x+=([2]=b)", "x=([0]={a,b})", "x=([y]=$(aa))", "x=([a b]=c)", "x=([\"0\"]=a\n # [\n [1]=b)", "x=('a[' \"[b\" c)", "x=(a[1]=b)", "x[$((1+1))]=a", "m=(k v l w)", "declare -A m; m=(k v l w)", "x=([0]+=a)", "x=([$(pwn)]=a)", "unset m; m[k]=1", "x=${x:=v}", 'x="${x:="v w"}"', 'y="${y:="v"}"', "x=a${x:=v}", "y=${x:=v}", "x=${x:=$(aa)}", "x=${x=*} y=$x", "shopt -q extglob", "shopt -u dotglob lastpipe;", "shopt -p expand_aliases;", "shopt -s extglob;", "f() { local -A m=([a]=b); bb \"${!m[@]}\" ${m[a]:-c}; }; f", "for i in \"${!x[@]}\"; do aa $i \"${x[$i]}\"; done", "x=([0]=a [1]=b c); aa \"${x[@]}\"", "x=([1 ]=a)", "x=([k]=1)>f", "x=(a)b", "x=(a b)>f", "x=#a", "x==b", "x=a:~", "y=a=~", "x=\"a:\"~",
    "x={a}", "x=?b",
)
REDIRECTS = (
    ">f", "> f1", ">>f2", "2>f3", "2>&1", ">&2", "<a1", "< a1", ">|f4", "<>f5", "&>f6", "&>>f7", "3>f8", "1>&2", "<&0",
    ">&-", "2>&-", "<<<a", "<<< 'a b'", '<<<"$x c"', "<<<$(aa)", "<<<~", "<<<*", "> 'f 9'", ">f$x", ">$(aa)",
    "> >(aa)", "< <(bb)", "{fd}>f", "{x}>f", "{y}<a1", "{x}>&1", "{x}>&-", ">&$x", ">&\"${y}\"", "<&$x", "{x}<<<a", "{x}>>$y", "1&>f", ">&f", ">& f", "2>f x=1", ">~/f", "> *", ">{a,b}", "2>(aa)", "3<a1",
    "12>f", "01>f", "2>&1-", "<&3", "2 >f", "> 2", "> 2>f", '>"f\na"', "<<<a\\\n", "&>&1", ">\\\nf", ">&\"1\"",
    "2>& 1", ">'f'\"g\"\\h", "<<<{a,b}", "<<<[a]?",
)
HEREDOCS = (
    "slurp <<EOF\n{body}EOF\n", "slurp <<'EOF'\n{body}EOF\n", "slurp <<-EOF\n\t{body}\tEOF\n",
    'slurp <<"EOF"\n{body}EOF\n', "slurp <<\\EOF\n{body}EOF\n", "slurp <<-'EOF'\n\t{body}EOF\n",
    "slurp <<EOF | aa\n{body}EOF\n", "slurp <<EOF; bb\n{body}EOF\n", "aa <<A <<B\n{body}A\nbody\nB\n",
    "slurp <<EOF && cc\n{body}EOF\ndd", "slurp <<E F\n{body}E\n", "slurp << EOF\n{body}EOF",
    "$(slurp <<EOF\n{body}EOF\n)", "$(slurp <<EOF\n{body}EOF)", "slurp <<EOF \"a\nb\"\n{body}EOF\n",
    "slurp 3<<X <<EOF\nX\n{body}EOF\n", "slurp <<EOF $(aa\nbb)\n{body}EOF\n", "(slurp <<EOF)\n{body}EOF\n",
    "{ slurp <<EOF; }\n{body}EOF\n", "slurp <<E\"O\"F\n{body}EOF\n", "slurp <<EOF # c\n{body}EOF\n",
    "slurp <<EOF \\\n  x\n{body}EOF\n", "aa \"$(slurp <<'EOF'\n{body}EOF\n)\"",
    "if slurp <<EOF\nthen aa; fi\n{body}EOF\n", "if slurp <<EOF; then\n{body}EOF\naa; fi",
    "while slurp; do break; done <<EOF\n{body}EOF\n", "`slurp <<EOF\n{body}EOF\n`",
)
BODIES = (
    "", "a b\n", "  'a' \"b\"\n", "$x\n", "$(aa)\n", "`bb`\n", "\\$x \\` \\\\ \\a\n", "$(aa\nbb)\n", "EOFx\n", "a\\\n",
    "EO\\\nF\n", "\tb\n\t\tc\n", "${x:-$(pwn)}\n", "$(pwn\n", "* ~ {a,b}\n", "$\n", "\"$(cc)\"\n", "a$\"b\"\n",
    "EOF)\n", "aa)\n", " EOF\n", "<(aa)\n", "$((1))\n", "é ü\n", "a\tb\n", "\\\tb\n", "x$y\n\t$y\n",
    "$(aa \"\n\tb\")\n", "#\n", ")\n", "\\\"x\\\"\n", "`aa 'b'`\n", "$x$(aa)$x\n", "${x}\\\\\n", "a\\$(pwn)\n", "${x:-a b}\n", "${x:-$(aa)}\n",
    "`aa \"b  c\"`\n", "`aa 'b\\\\c'`\n", "`aa \\$x`\n", "x$'b\n", "$\\a$\\$x\n", "a\\\nb$(aa)\n", "a\\\\\n", "a\\\\\\\nb\n", "$\\\n(aa)\n", "$x\\\ny\n", "\\\n", "$(aa 'b\\\nc')\n", "\\\n\tb\n",
    "${x:-'$(aa)'}\n", "${x:-\"a\"}\n", "${x%a}${x/a/`bb`}\n", "${x:-a\nb}\n",
)
VALUES = (
    "", "a", "-o", "'a b'", "'a -o'", "'-'", "' '", "'* x'", "*", "a1", "a.b.c", "a/b/c.txt", "'b '", "' -o'", "aXbX", "$x", "\"$y\"",
    "${x:-a}", "7", "12", "'[a]1'", "~", "~/a", "$'a\\tb'", "'\\'", "${x%b}", "'a  c'", "${y:+b}", "A-z", "é",
)
MADE = (
    "a", "-", "o", "'-o'", "/", ".", "$x", "$y", "$z", '"$x"', '"$y"', "${x}", "${x:-a}", "${x:--o}", '"${x:-b c}"', "${x:-b c}",
    "${x:-'-o' b}", '${x:-"a" "-o"}', "${x-a}", "${y:+-o}", "${y+a b}", '"${y:+a}"', "${z:-$x}", '"${z:-$x}"', "${z:-\"$x\"}", "${x:-a $y}",
    "${x#*/}", "${x##*/}", "${x%/*}", '"${x%%.*}"', "${x%.*}", "${x#a}", "${x%c}", "${x/a/b}", "${x//X/-}", "${x/#a/-o }", "${x/%b/ c}",
    "${x^^}", "${x,}", "${x:1}", "${x:1:2}", "${x: -2}", "${x:0:-1}", "${#x}", "$?", "$#", "${x:?}", "*", "${HOME:-a}", "${PWD##*/}",
    "${x:${#y}}", "${x[$#]}", '"${x[@]:1}"', '"${x[@]:1:1}"', "${y[@]:0:2}", '"${x[@]:$#}"',
    '"${x[@]}"', "${x[0]}", '"${y[1]}"', '"${x[@]}"', "${y[@]}", "${x[1]:-b}", "${TMPDIR:-/tmp}", "${y:-*}", "${x/ /}", "${x//-/}", "${y:-~}", "${z-~/b}", "${x:-'a b'}", "${x%${y}}", "${x#\"$y\"}", "a ",
)
NAMES = ("f", "f", "g", "g", "h", "aa", "bb", "true", "echo", "test", "f-g", "f.g", "x")
GIVEN = (
    "a", "'b c'", "-o", "''", "$x", '"$x"', "$1", '"$1"', "$2", '"$2"', '"$@"', "$@", '"$*"', "$*", "$#", "${1:-d}", '"${1:-d e}"',
    "${2-d}", "${1:+d}", '"${@:2}"', '"${@:1:1}"', "${1#a}", "${3}", "*", "$(aa)", '"$(N a)"', "$(N W)", "<(N a)", "1", "${x:-$(N)}", "$((1+1))", "$(($1))",
    '"a$@b"', "x=1", "${1%.*}", '"${1##*/}"', "`N b`", "~", "$0",
)
FUNCTIONS = (
    "N() { {body}; }", "N() { {body}\n}", "N ()\n{\n{body}\n}", "function N { {body}; }", "function N() { {body}; }", "function N ( {body} )",
    "N() ( {body} )", "N() { {body}; } >f", "N() { {body}; } 2>/dev/null", "if true; then N() { {body}; }; fi", "false || N() { {body}; }",
    "(N() { {body}; })", "eval 'N() { aa e \"$@\"; }'", "N() { {body}; } <<<$1", "N() { {body}; } && N q", "N() if true; then {body}; fi",
    "for V in 1 2; do N() { {body}; }; done", "N() { {body}; } | bb", "x=1 N() { {body}; }", "N() {body}",
)
CALLS = (
    "N", "N W", "N W W", "aa W W", "bb W", "aa W", "cc W W W", 'aa "$@"', "bb $#", "V=W N W", "V=W", "local V", "local V=W", "local V=W z=W", "local", "shift", "shift 2", "return", "return 1",
    "set -- W W", "set -- N W", '"$@"', '"$1" W', "$1 W", "$x W", "N W | aa", "N W && bb", "N W || return", "! N W", "if N W; then aa V; fi", "(N W)", "{ N W; } >f",
    "N W &", "aa $V", 'aa "$V" W', "for V in W W; do {}; done", "for V; do {}; done", 'for V in "$@"; do {}; done', "while N; do {}; break; done", "[ W = W ] && {}",
    "case W in a) {};; *) {};; esac", "[[ $1 == a ]] && return", "unset V", "unset -f N", "unset N", "eval N a", "eval 'aa $1'", "eval \"N q\"", "command N W", "command aa W", "time N W", "aa $(N W)", "V=$(N W)",
    "[[ $# -gt 1 ]] && {}", "(( $# > 1 )) || {}", "V=$((V+1)); aa $V", "(( $1 > 0 )) && {}", "N <<E\n$1\nE\n", "N W >f", "break", "continue", "exit", "cd /; N", "\\N W", "'N' W", "${V:-N} W", "V=N; $V W",
    "x+=W", "x=(W W); aa \"${x[@]}\"", "shift W", "local V=$1 W=2", "local -r V=W", "V=(W W) N", "aa ${V-unset}", "aa \"${V+set}\"", "set -e", "set -- \"$@\" W", "set -f W", "while [ $# -gt 0 ]; do {}; shift; done",
    "local V=(W W)", "local V=(W) z=W; aa \"${V[@]}\"", "declare V=W", "declare -a V=(W W); aa \"${V[@]}\" $V", ": ${V:=W}", ": \"${V:=W}\" ${z=W}; aa $V \"$z\"", "IFS=$'\\n'; aa $V W",
    "IFS=; aa $V", "IFS=' '; N $V \"$*\"", "unset IFS", "local IFS=$'\\n\\t'", "shopt -s nullglob; aa W q*", "shopt -s globstar; aa **", "aa $(case W in a) N;; *) bb W;; esac)", "V=$(case $1 in a|b) aa; bb;; *) ;; esac)", "aa 3>&1 1>&2 2>&3", "for V; do case $V in -*) {};; esac; done",
    "trap 'aa $V' EXIT", "trap 'N t' EXIT", "trap \"bb W\" EXIT", "trap 'cc $V; N' ERR", "trap 'aa d' DEBUG", "trap 'V=W' EXIT", "trap 'aa r \"$@\"' RETURN", "trap - EXIT", "trap 'V=W' ERR", "(trap 'aa $V' EXIT; {})",
    "V=W eval 'aa $V'", "V=W command eval 'aa $V; V=W'", "V=W export V", "declare -g V=W", "local V; declare -g V=W; aa $V", "declare -i V=1; V+=2; aa $V", "declare -i V", "trap 'shift' USR1", "aa {$V,W}",
    "export -x V=W", "readonly -g V=W", "declare -p V=W; aa $V", "V=(W W W); aa \"${V[-1]}\"; bb ${V[-2]}", "V=W f-g; aa $V", "local -i V=2; aa $V", "trap 'aa $1' RETURN", "eval \"V=W\"; aa $V",
)
NUMBERS = (
    "0", "1", "2", "7", "12", "x", "y", "z", "$x", "${y}", "$#", "${#x}", "08", "0x1", "x++", "x[0]", "1.5", "$(aa)", "'1'", "a",
)
SIGNS = (
    "+", "-", "*", "/", "%", "**", "<", ">", "<=", ">=", "==", "!=", "<<", ">>", "&", "|", "^", "&&", "||", ",", "=", "<(", "#",
)
SOUP = (
    "aa", "bb", "pwn", "x=", "$", "$(", "${", "${x:-", "${x%", "${x/", ":-", "/", "%%", ")", "}", "{", "(", "((", "))", "[", "]", "[[", "]]", "'", '"', "\\",
    "`", "\n", " ", " ", " ", "\t", ";", ";;", ";&", "&", "&&", "|", "||", "|&", "<", ">", ">>", "<<", "<<-", "<<<",
    "<(", ">(", ">&", "<&", "&>", "2", "EOF", "\nEOF\n", "#", "~", "*", "?", "!", "=", ",", "..", ":", "-", "@", "$'",
    '$"', "\\\n", "\\'", "if ", "then ", "fi", "do ", "done", "for x in ", "while ", "until ", "else ", "elif ",
    "case ", "esac", "in ", "time ", "coproc ", "function ", "f() ", "$x", "é", "\r", "\x01", "$((", "1", "+=", "a[",
    "&>f", ">f", "slurp", "show",
)
SHAPES = (
    "{ A; }", "( A )", "(A)", "if A; then B; fi", "if A\nthen B\nelse C\nfi", "if A; then B; elif C; then A; fi",
    "for v in W; do A; done", "for v in W W\ndo\nA\ndone", "while A; do B; break; done", "for v do A; done",
    "until A\ndo B; break\ndone", "! A", "A | B", "A |\n B", "A |& B", "case a in a) A;; esac", "f() { A; }",
    "[[ W ]]", "time A", "[[ W == W ]]", "[[ -n W && ! -f W ]] || A", "[[ ( W != W ) || W < W ]]", "[[ W =~ W ]]", "[[ 1 -lt W ]] && B",
    "[[ -e W ]] >f", "[[ W -nt W ]]", "if [[ W ]]; then A; fi", "[[ W\n|| W ]]", "case W in W) A;; esac", "case W in\nW|W)\nA\n;;\n*) B;; esac",
    "case W in (W) A; B;; (*) C; esac", "case W in W) A;; W) ;; esac >f", "case W in esac", "case W in W) A;& *) B;; esac", "time -p A | B",
    "time { A; }", "time", "v=(W W); aa \"${v[@]}\" ${v[1]}", "v=(W\nW # c\n)", "v+=(W); A", "((1)) && A", "((x=1)); A", "for ((i=0; i<2; i++)); do A; done",
    ". ./lib; lf W; lg W W", "x=W; . ./lib W; lh; lf $y", "f() { . ./lib W; lg $1; }; f W; lh", ". ./lib && lf W | B", "(. ./lib; lg W); lf W", "lf() { A; }; . ./lib; lf W",
    "for v in W W; do . ./lib; lf $v; done", ". ./lib; unset -f lf; lh", "A; . ./lib; lg W", ". ./lib; lg W >f; lh 2>&1", "y=W . ./lib; lh $y",
    "while ((0)); do A; done", "((A))", "((1) || A)", "((1)); ((2)) | A",
)
# fmt: on

INSTRUCTIVE: tuple[str, ...] = (
    *(
        f'f() {{ {call.replace("{}", "cc q").replace("N", "g").replace("W", "w").replace("V", "x")}\ncc $x "$@"\n}}; g() {{ bb g "$@"; }}\nf a \'b c\''
        for call in CALLS
    ),
    *(f"aa {atom} bb" for atom in ATOMS),
    *(f"{atom} bb" for atom in ATOMS),
    *(f"aa x{atom}" for atom in ATOMS),
    *(f"for v in {atom} z; do aa $v; done" for atom in ATOMS),
    *(f"slurp <<< {atom}" for atom in ATOMS),
    *(f"aa > {atom}" for atom in ATOMS),
    *(f"x={atom} show" for atom in ATOMS),
    *(f"{assign} show" for assign in ASSIGN),
    *(f"{assign}; show $x" for assign in ASSIGN),
    *(f"aa {redirect} bb" for redirect in REDIRECTS),
    *(f"{redirect} aa" for redirect in REDIRECTS),
    *(f"{{ aa; bb; }} {redirect}" for redirect in REDIRECTS),
    *(form.replace("{body}", body) for form in HEREDOCS for body in BODIES),
)


class Writer:
    """Writes scripts at random: mostly well formed ones with something odd in them, some soup, some mutations."""

    def __init__(self, chance: random.Random, corpus: tuple[str, ...] = ()) -> None:
        self.chance = chance
        self.corpus = corpus

    def script(self) -> str:
        kind = self.chance.random()
        if kind < 0.1:
            return self.values()
        if kind < 0.15:
            return self.numbers()
        if kind < 0.25:
            return self.functions(2)
        if kind < 0.28:
            return self.mutated(self.functions(2))
        if kind < 0.35:
            return self.listing(3)
        if kind < 0.45:
            return self.soup()
        if kind < 0.6:
            return self.mutated(self.chance.choice(INSTRUCTIVE))
        if kind < 0.75 and self.corpus:
            return self.mutated(self.chance.choice(self.corpus))
        return self.mutated(self.listing(2))

    def values(self) -> str:
        """Values that are known, and words that are made of them."""
        pick = self.chance.choice
        lines = [f"{pick('xyxyz')}{pick(('=', '=', '=', '+='))}{pick(VALUES)}" for _ in range(self.chance.randrange(4))]
        if self.chance.random() < 0.4:
            items = " ".join(pick(VALUES) for _ in range(self.chance.randrange(4)))
            lines.insert(self.chance.randrange(len(lines) + 1), f"{pick('xy')}{pick(('=', '=', '+='))}({items})")
        if self.chance.random() < 0.3:
            lines.append(
                f"{pick('xy')}={pick(VALUES)} {pick('yz')}={pick(MADE)}{pick(('', ' > $y', ' bb $y', ' >$x'))}"
            )
        if self.chance.random() < 0.2:
            lines.append(
                f"{pick(('aa', 'x=f', ':', 'y=g z=h', ': ${z:=f}', '{ aa; }'))} {pick(('>', '>>', '2>', '&>'))} {pick(MADE)}"
            )
        if self.chance.random() < 0.2:
            lines.append(
                f"case {pick(MADE)} in {pick(MADE)}) x={pick(VALUES)};; {pick(MADE)}|*) y={pick(VALUES)};; esac"
            )
        if self.chance.random() < 0.2:
            lines.append(
                f"[[ {pick(MADE)} {pick(('==', '=', '!=', '<', '>', '=~', '-ef'))} {pick(MADE)} ]] && x={pick(VALUES)}"
            )
        if self.chance.random() < 0.2:
            lines.insert(0, f"for {pick('xyz')} in {pick(VALUES)} {pick(VALUES)}; do\n{pick(lines or ['aa'])}\ndone")
        for name in ("aa", "bb"):
            words = ["".join(pick(MADE) for _ in range(self.chance.randrange(1, 4))) for _ in range(2)]
            lines.append(" ".join([name, *words]))
        return "\n".join(lines)

    def functions(self, depth: int) -> str:
        """Functions, and what calls them or may take them for something else."""
        pick, lines = self.chance.choice, []
        if self.chance.random() < 0.4:
            lines.append(f"{pick('xy')}={pick(VALUES)}")
        for _ in range(self.chance.randrange(1, 4)):
            lines.append(self.definition(depth))
            if self.chance.random() < 0.5:
                lines.append(self.calling(depth))
        lines += [self.calling(depth) for _ in range(self.chance.randrange(1, 4))]
        return pick(("\n", "\n", "; ")).join(lines) + pick(("", "", "\naa $x $y", '\nbb "$@" $#'))

    def definition(self, depth: int) -> str:
        pick = self.chance.choice
        lines = [
            self.definition(depth - 1) if depth > 0 and self.chance.random() < 0.1 else self.calling(depth)
            for _ in range(self.chance.randrange(1, 5))
        ]
        body = pick(("; ", "\n", "\n")).join(lines)
        return pick(FUNCTIONS).replace("N", pick(NAMES)).replace("{body}", body)

    def calling(self, depth: int) -> str:
        """A line that makes sense inside a function, and often outside of one."""
        pick = self.chance.choice
        text = pick(CALLS)
        for _ in range(4):
            text = text.replace("N", pick(NAMES), 1).replace("W", pick(GIVEN), 1).replace("W", pick(GIVEN), 1)
        if "{}" in text:
            text = text.replace("{}", self.calling(depth - 1) if depth > 0 else f"{pick(NAMES)} {pick(GIVEN)}")
        return text.replace("V", pick("xyz"))

    def expression(self, depth: int) -> str:
        pick = self.chance.choice
        if depth <= 0 or self.chance.random() < 0.3:
            return pick(NUMBERS)
        one, two = self.expression(depth - 1), self.expression(depth - 1)
        blank = pick(("", " "))
        return pick(
            (f"{one}{blank}{pick(SIGNS)}{blank}{two}", f"({one})", f"{pick('-+!~')}{one}", f"{one}?{two}:{pick(NUMBERS)}",
             f"{one} {pick(SIGNS)} {two}")
        )  # fmt: skip

    def numbers(self) -> str:
        """Names that hold numbers, and arithmetic on them."""
        pick = self.chance.choice
        lines = [f"{name}={pick(('0', '1', '-3', '7', '12', '$#', '$((2))'))}" for name in "xyz"]
        for _ in range(self.chance.randrange(1, 5)):
            name, one, two = pick("xyz"), self.expression(2), self.expression(1)
            lines.append(
                pick(
                    (f"aa $(({one}))", f'bb "a$(({one}))" $(({two}))x', f"(({name}{pick(('=', '+=', '-=', '*='))}{one}))",
                     f"(({name}{pick(('++', '--'))}))", f"{name}=$(({one}))", f"(({one})) && cc ${name}", f"aa ${name} f${name}",
                     f"for {name} in 1 2 3; do aa $(({one})); done", f"for (({name}=0; {name}<3; {name}++)); do bb ${name} $(({one})); done",
                     f"while (({name}<3)); do ((++{name})); aa -${name}; done", f"(({one}, {name}={two}))", f"aa $((({one})*{two})) <<<$(({two}))",
                     f"if (({one})); then {name}=5; else (({name}--)); fi", f"[[ {one} -{pick(('eq', 'lt'))} ${name} ]] && {name}=4", f"(({one} && ({name}={two}))); aa ${name}")
                )
            )  # fmt: skip
        if self.chance.random() < 0.4:
            lines.insert(self.chance.randrange(len(lines) + 1), "a=(p 'q r' -s)\ns=abcdef")
            if self.chance.random() < 0.4:
                lines.append(
                    pick(
                        (
                            "a[1]=t",
                            "a[$x]='u v'",
                            "a[y+1]=$x",
                            "a[3]+=w",
                            "a[0]=~",
                            "b[1]=a; bb ${b[1]}",
                            "a[${#a[@]}]=z",
                        )
                    )
                )
            index, pieces = (
                self.expression(1),
                (
                    "${a[I]}",
                    '"${a[I]}"',
                    "${s:I:1}",
                    '"${s:I}"',
                    '"${a[@]:I}"',
                    "${a[$x]}",
                    "${s:$y:$x}",
                    "${a[@]:1:2}",
                    "${!n}",
                ),
            )
            lines.append(
                f"{pick(('n=x', 'n=a', 'n=s'))}\ncc " + " ".join(pick(pieces).replace("I", index) for _ in range(3))
            )
        lines.append("aa $x $y $z")
        return pick(("\n", "; ")).join(lines)

    def word(self, depth: int) -> str:
        pick = self.chance.choice
        kind = self.chance.random()
        if kind < 0.6:
            return pick(ATOMS)
        if kind < 0.75:
            return pick(ATOMS) + pick(ATOMS)
        if depth <= 0:
            return pick(("aa", "bb", "'c d'"))
        inner = self.listing(depth - 1)
        return pick(("$({})", '"$({})"', "`{}`", '"`{}`"', "<({})", ">({})", "a$({})b", '"a $({}) b"')).replace(
            "{}", inner
        )

    def simple(self, depth: int) -> str:
        pick, roll = self.chance.choice, self.chance.random
        if roll() < 0.1:
            return pick(HEREDOCS).replace("{body}", pick(BODIES) + pick(BODIES))
        pieces = []
        if roll() < 0.2:
            pieces.append(pick(ASSIGN))
        pieces.append(pick(SIMPLE))
        pieces += [self.word(depth) for _ in range(self.chance.randrange(3))]
        if roll() < 0.3:
            pieces.insert(self.chance.randrange(len(pieces) + 1), pick(REDIRECTS))
        return pick((" ", " ", " ", "  ", "\t", " \\\n ")).join(pieces)

    def command(self, depth: int) -> str:
        if depth <= 0 or self.chance.random() < 0.6:
            return self.simple(depth)
        inner = [self.listing(depth - 1) for _ in range(3)]
        shape = self.chance.choice(SHAPES)
        text = re.sub(
            "[ABCW]", lambda found: self.word(depth - 1) if found[0] == "W" else inner["ABC".index(found[0])], shape
        )
        return text + (" " + self.chance.choice(REDIRECTS) if self.chance.random() < 0.2 else "")

    def listing(self, depth: int) -> str:
        text = self.command(depth)
        while self.chance.random() < 0.4:
            text += self.chance.choice(
                ("; ", "\n", " && ", " || ", " & ", " &&\n", " # c\n", ";", " | ", "\n\n")
            ) + self.command(depth)
        return text

    def soup(self) -> str:
        return "".join(self.chance.choice(SOUP) for _ in range(self.chance.randrange(2, 14)))

    def mutated(self, text: str) -> str:
        for _ in range(self.chance.randrange(1, 4)):
            at = self.chance.randrange(len(text) + 1)
            to = min(len(text), at + self.chance.randrange(1, 4))
            kind = self.chance.random()
            if kind < 0.5:
                text = text[:at] + self.chance.choice(SOUP) + text[at:]
            elif kind < 0.75:
                text = text[:at] + text[to:]
            elif kind < 0.9:
                text = text[:at] + self.chance.choice(SOUP) + text[to:]
            else:
                text = text[:to] + text[at:]
        return text


# Words that could reach beyond the throw-away folder, and builtins that run their arguments by design (those are for
# the rules to judge, not for the reader). The judge never runs a text that spells one of them.
_FORBIDDEN = re.compile(
    r"let\b|typeset|readonly|export|compgen|complete|mapfile|readarray|read\b|-v|getopts"
    r"|kill|exec|ulimit|suspend|logout|source|builtin|command_|enable|wait|[fb]g\b|jobs|disown|umask"
    r"|history|fc\b|RECORD"
)
_ABSOLUTE = re.compile(r"/(?!dev/null|a\b|x\b|b\b|c\b|f\b)")


def harmless(text: str, tree: Script, *, foreign: bool = False) -> bool:
    """Return True if the text may be run here: no absolute path, no builtin that reaches other processes."""
    if _FORBIDDEN.search(text):
        return False
    if "lib" in text and not plain_names(tree):
        return False  # such a name may be `.`, which reads the file of commands
    if _ABSOLUTE.search(text.replace("./lib", "")):
        everything = list(nodes(tree))
        names = [node.words[0].literal for node in everything if isinstance(node, Command) and node.words]
        plain = all(name is not None and name.isalpha() for name in names)
        if foreign or not plain or any(isinstance(node, Redirect) for node in everything):
            return False
    for node in nodes(tree):
        if isinstance(node, Word) and _FORBIDDEN.search("".join(p.text for p in node.parts if isinstance(p, Text))):
            return False
    return True


def plain_names(tree: Script) -> bool:
    """Return True if every command name is literal, as required of texts from outside."""
    return all(node.words[0].literal for node in nodes(tree) if isinstance(node, Command) and node.words)


def judge(bash: Bash, text: str, *, foreign: bool = False) -> list[str] | None:
    """The laws that `text` breaks, or None when the reader refuses it (or it may not be run here)."""
    tree = read(text)
    if isinstance(tree, Opaque):
        return None
    if not bash.valid(text):
        return ["bash refuses the text"]
    if not harmless(text, tree, foreign=foreign) or (foreign and not plain_names(tree)):
        return None
    meaning = meanings(bash, tree)
    if meaning is None:
        return None
    seen = bash.run(text)
    return [*broken(tree, seen), *surprises(meaning, seen), *unannounced(bash, meaning, seen)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--corpus", type=Path, action="append", default=[], help="JSON lines with a `cmd`; repeatable")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    corpus = tuple(json.loads(line)["cmd"] for file in options.corpus for line in file.open(encoding="utf-8"))
    writer = Writer(random.Random(seed), corpus)
    made = judged = faulty = differing = 0
    slowest = (0.0, "")
    end = time.monotonic() + options.seconds
    with Bash(patience=3.0) as bash:
        while time.monotonic() < end:
            text = writer.script()
            made += 1
            tree = read(text)
            if isinstance(tree, Opaque):
                continue
            before = time.perf_counter()
            doubt = find_disagreement(text, tree)
            slowest = max(slowest, (time.perf_counter() - before, text))
            if doubt is not None:
                differing += 1
                print(f"witness: {doubt.reason}: {text!r}", flush=True)
            faults = judge(bash, text, foreign=bool(corpus))
            judged += faults is not None
            for fault in faults or ():
                faulty += 1
                print(f"LAW BROKEN: {fault}: {text!r}", flush=True)
    print(f"seed {seed}: {made} made, {judged} judged by bash, {faulty} faults, {differing} witness doubts")
    print(f"slowest witness {slowest[0] * 1000:.0f} ms: {slowest[1]!r}")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
