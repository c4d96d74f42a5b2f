"""Real bash as the judge of the reader: what bash ran, read or created must be in the tree of the text it was given.

The differential test drives this module for a moment; `python tests/fuzz_bash.py --seconds 600` drives it for long.
`--corpus FILE` (JSON lines with a `cmd`) adds real command lines to what is mutated. Exit status 1 means: a law broke.

Scripts run in a throw-away folder with no program on PATH. Every program name that bash looks up reaches
`command_not_found_handle`, which records its words (and its input, or variables, when the script asks for that).
"""

import argparse
import dataclasses
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from policy.script.reader import read
from policy.script.tree import (
    Assignment,
    Command,
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
from policy.witness import disagreement

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
    """What one run of bash did."""

    argvs: tuple[tuple[str, ...], ...]
    inputs: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    created: tuple[str, ...]
    finished: bool


class Bash:
    """Runs scripts in a folder of its own; use as a context manager."""

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
        """Whether bash itself reads the text without a word of complaint."""
        done = subprocess.run(
            [self.program, "--norc", "--noprofile", "-n", "-c", script],
            env=self.environment,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
        return done.returncode == 0 and not done.stderr

    def run(self, script: str, patience: float = 3.0) -> Seen:
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
        finished = bool(select.select([reading], [], [], patience)[0])
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
    """What the word may become, as one word."""
    return "".join(re.escape(part.text) if isinstance(part, Text) else "[^\\x00]*" for part in word.parts)


def splits(word: Word) -> bool:
    """Whether the word may become any number of words."""
    return any(
        isinstance(part, Glob)
        or (isinstance(part, Parameter) and (not part.quoted or (part.name in "@*" and not part.length)))
        or (isinstance(part, Substitution) and not part.quoted)
        for part in word.parts
    )


def broken(tree: Script, seen: Seen) -> list[str]:
    """The laws that this run of bash broke, in words."""
    everything = list(nodes(tree))
    commands = [
        re.compile(
            "".join("(?:[^\\x00]*\\0)*" if splits(word) else pattern(word) + "\\x00" for word in node.words), re.S
        )
        for node in everything
        if isinstance(node, Command) and node.words
    ]
    redirects = [node for node in everything if isinstance(node, Redirect)]
    faults = []
    for argv in seen.argvs:
        line = "".join(word + "\0" for word in argv)
        if not any(command.fullmatch(line) for command in commands):
            faults.append(f"bash ran {argv!r}")
    targets = [re.compile(pattern(node.target), re.S) for node in redirects if node.op in WRITES]
    for name in seen.created:
        if not any(target.fullmatch(name) or target.fullmatch(Path(name).name) for target in targets):
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
        appends = any(isinstance(node, Assignment) and node.append for node in everything)
        if value and values and not appends and not any(found.fullmatch(value) for found in values):
            faults.append(f"bash set {name}={value!r}")
    return faults


# -- what to try -------------------------------------------------------------------------------------------------

# fmt: off
ATOMS = (
    "aa", "bb", "cc", "dd", "-n", "--o=x", "a.b/c", "x=1", "2", "a#b", "a!", "!", "^x", "%s", "@", "a@b", "=", "a:b",
    "'q r'", "''", '""', '"q r"', "'a'\\''b'", '"a"\'b\'', "a'b'c", 'a"b\'c"d', "a'b\"c'd", '"a\\nb"',
    '"\\a\\$\\`\\"\\\\"', "\\a", "\\ ", "\\'", "\\$x", "\\`", "\\#", "\\~", "\\{a,b}", "$'\\x2d\\x6f'", "$'\\t\\''",
    "$'a\\\\b'", "$'\\101\\cg'", '$"q r"', '$"$x"', "$x", "${x}", '"$x"', '"${x}y"', "${#x}", '"${#x}"', "$1", "$10",
    "$#", "$?", '"$@"', '"$*"', "$$", "$-", "$(aa)", '"$(bb cc)"', "`cc`", '"`dd aa`"', "a$(bb)c", "$(aa; bb)",
    "$(aa\nbb)", "$( (aa) )", "$(aa # x )\n)", "$(<a1)", "<(aa)", ">(bb)", '""<(cc)', "a$", '"$"', "$/", "$.", '"a$"',
    "$x$y", "$x'y'", "${x}[1]", "*", "?", "*.txt", "[ab]*", "a[", "[", "]", "[]", "[!a]", "a[1]", '"*"', "\\*",
    "'[a]'", "a1*", "[\"a\"b]", "a[!]1]", "a[1]]", "a[$x]", "a[1-9]", "[[:alpha:]]1", "a[a[1]", "a[b1", "a[\\1]",
    "a[1", "[^b]1", "[a]?", "a[/]1", "*1", "?1", "[", "a['1']", "~", "~/a", "~root", "~nobody/x", "a~", "~$x", "~'a'", "a=~", "a:~", "x=a:~", "HEAD~1",
    "~+", "~x$(aa)", "{}", "{a}", "{a,b}", "x{a,b}y", "{a,b}{1..3}", "{3..-1}", "{a..b,c}", "{01..3}", "{,a}", "b{,a}",
    "--x={a,b}", "{a,b}*", "{a,{b,c}}", "{a,b}}", "{{a,b}", "{a,b},c", "{a,b}$x", "{1..3..2}", "{a..c}", "{a,'b'}",
    "f{,.bak}", "x={a,b}", "{if,a}", "{1..2}{a,b}{,c}", "{-1..1}", "{a,=}", "{-,a}", "{a,}", "{1..3}", "a{b", "}",
    "{a,$(bb)}", "@{u}", "a{,}", "{a..", "${x:-aa}", "${x:-$(pwn)}", "$((1+2))", "$[1]", "${!x}", "${x@P}", "${x#a}",
    "'$(pwn)'", "\"\\$(pwn)\"", "'`pwn`'", "\\$(pwn)", "é", "'é b'", "if", "then", "do", "done", "fi", "in", "for",
    "time", "[[", "function", "case", "esac", "{", "!a", "#c", "a\\\nb", "\\\n",
)
SIMPLE = ("aa", "bb x", "cc -a 'b c'", "dd", "show", "slurp", "true", "false", ":", "echo a", "x=1", "y=2", "x=a show")
ASSIGN = (
    "x=", "x=1", "y='a b'", 'x="$y"', "x=$(aa)", "x=~", "x=~/a:b", "y=*", "x=a[1]", "x=`bb`", "x+=c", "y={a,b}",
    "x=$y", "x=a\\ b", "x=$'a\\nb'", "x=<(aa)", "a[1]=x", "x=(a b)", "x=#a", "x==b", "x=a:~", "y=a=~", "x=\"a:\"~",
    "x={a}", "x=?b",
)
REDIRECTS = (
    ">f", "> f1", ">>f2", "2>f3", "2>&1", ">&2", "<a1", "< a1", ">|f4", "<>f5", "&>f6", "&>>f7", "3>f8", "1>&2", "<&0",
    ">&-", "2>&-", "<<<a", "<<< 'a b'", '<<<"$x c"', "<<<$(aa)", "<<<~", "<<<*", "> 'f 9'", ">f$x", ">$(aa)",
    "> >(aa)", "< <(bb)", "{fd}>f", "1&>f", ">&f", ">& f", "2>f x=1", ">~/f", "> *", ">{a,b}", "2>(aa)", "3<a1",
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
    "$(aa \"\n\tb\")\n", "#\n", ")\n", "\\\"x\\\"\n", "`aa 'b'`\n", "$x$(aa)$x\n", "${x}\\\\\n", "a\\$(pwn)\n",
)
SOUP = (
    "aa", "bb", "pwn", "x=", "$", "$(", "${", ")", "}", "{", "(", "((", "))", "[", "]", "[[", "]]", "'", '"', "\\",
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
    "[[ W ]]", "time A",
)
# fmt: on

INSTRUCTIVE: tuple[str, ...] = (
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
        if kind < 0.35:
            return self.listing(3)
        if kind < 0.45:
            return self.soup()
        if kind < 0.6:
            return self.mutated(self.chance.choice(INSTRUCTIVE))
        if kind < 0.75 and self.corpus:
            return self.mutated(self.chance.choice(self.corpus))
        return self.mutated(self.listing(2))

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
    r"let\b|declare|typeset|local|readonly|export|compgen|complete|mapfile|readarray|read\b|unset|-v|getopts"
    r"|kill|exec|ulimit|trap|suspend|logout|eval|source|builtin|command|enable|wait|[fb]g\b|jobs|disown|umask"
    r"|history|fc\b|RECORD|/(?!dev/null|a\b|x\b|b\b|c\b|f\b)"
)


def harmless(text: str, tree: Script) -> bool:
    """Whether the text may be run here: nothing absolute, no builtin that reaches other processes."""
    if _FORBIDDEN.search(text):
        return False
    for node in nodes(tree):
        if isinstance(node, Word) and _FORBIDDEN.search("".join(p.text for p in node.parts if isinstance(p, Text))):
            return False
    return True


def plain_names(tree: Script) -> bool:
    """Whether every command name is spelled out (demanded of texts whose words we did not choose)."""
    return all(node.words[0].literal for node in nodes(tree) if isinstance(node, Command) and node.words)


def judge(bash: Bash, text: str, *, foreign: bool = False) -> list[str] | None:
    """The laws that `text` breaks, or None when the reader refuses it (or it may not be run here)."""
    tree = read(text)
    if isinstance(tree, Opaque) or not harmless(text, tree) or (foreign and not plain_names(tree)):
        return None
    if not bash.valid(text):
        return ["bash refuses the text"]
    return broken(tree, bash.run(text))


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
    with Bash() as bash:
        while time.monotonic() < end:
            text = writer.script()
            made += 1
            tree = read(text)
            if isinstance(tree, Opaque):
                continue
            before = time.perf_counter()
            doubt = disagreement(text, tree)
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
