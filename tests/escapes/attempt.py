"""One escape attempt: a program that runs in the sandbox, and the sign outside that shows an escape.

A program never says that it was contained. It says `GOT` when something was open that must not be, and otherwise acts:
what it read is printed, what it changed is changed. `TRIED` is its last line; without it, it has proved nothing.
"""

from dataclasses import dataclass

PYTHON = '''import array, ctypes, errno, fcntl, json, mmap, os, re, signal, socket, struct, subprocess, sys, threading, time
os.chdir(os.path.dirname(os.path.abspath(__file__)))
W = json.load(open("world.json"))
MARK = "PLAN" + "TED"
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    answer = libc.syscall(ctypes.c_long(number), *words)
    return answer if answer >= 0 else -ctypes.get_errno()
def got(what):
    print("GOT", what, flush=True)
def show(path):
    """Only decoys are printed: what else lies on the machine is nobody's business."""
    print(re.findall(rb"decoy-[0-9a-f]+", open(path, "rb").read(1 << 20)))
def each(*tries):
    for one in tries:
        try:
            one()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(str(error)[:100])
print("STARTED", flush=True)
def attempt():
%s
each(attempt)
print("TRIED", flush=True)
'''

SHELL = """cd "$(dirname "$0")"
HOME_OUTSIDE={home} OUTSIDE={outside} SECRET={secret} TARGET={target} KEY={key} NAP={nap}
MARK=PLAN""TED
echo STARTED
{{
%s
}} 2>&1
echo TRIED
"""


@dataclass(frozen=True)
class Attempt:
    """`kind` groups the table; `why` says what would be gained. `language`: py, sh or c.

    `dies`: it may be killed for trying (a signal, a limit), and then its last line is missing. `rights`: `read-only` runs it
    as a command that only reads. `seconds`: the wall time it is given. `x86`: its numbers are those of x86_64.
    """

    name: str
    kind: str
    why: str
    program: str
    language: str = "py"
    dies: bool = False
    seconds: float = 60.0
    x86: bool = False
    tty: bool = False
    wait: float = 0.0  # seconds after its end at which is looked

    def source(self, world: dict[str, object]) -> str:
        body = self.program.strip("\n")
        if self.language == "py":
            return PYTHON % "\n".join("    " + line for line in body.splitlines())
        if self.language == "sh":
            return SHELL.format(**world) % body
        return body + "\n"
