"""Tests of API keys: the order of their sources, whole runs with a key from each source, and the places where a key
may be.
"""

import contextlib
import ctypes
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from runner.secrets.helper_command import Helper
from runner.secrets.resolve import KeyRequest, KeySource, SourceState, find, look
from runner.secrets.secret import Secret, SecretError
from tests.support.egress_network import certificate
from tests.support.model_server import Delta, ModelServer, calling, serving
from tests.support.sandbox_bench import USERS
from tests.support.secret_service import KeyringHarness, harness, terminal
from tests.support.waiting import until

# An address that leads to this machine, and that the product takes for another one: a helper is not run for a server here.
ANYWHERE = "0.0.0.0"
KEY, OTHER = "sk-canary-e41b7f0c92d6", "sk-canary-0a9d5ec83b17"
U, A, B, N, M, S = (
    SourceState.USED,
    SourceState.ABSENT,
    SourceState.BROKEN,
    SourceState.UNASKED,
    SourceState.MISSING,
    SourceState.SKIPPED,
)
GOOD, BAD = Helper(("printf", KEY)), Helper(("sh", "-c", "exit 3"))
VARIABLE = {"ANTHROPIC_API_KEY": OTHER}

# what is given, what becomes of stdin, variable, helper and keyring (there is none here), why
# fmt: off
ORDER = [
    ({},                                                    {},         (A, A, A, M), "nothing anywhere"),
    ({"stdin_key": Secret(KEY), "helper": GOOD},            VARIABLE,   (U, N, N, N), "what was said for this run"),
    ({"helper": GOOD},                                      VARIABLE,   (A, U, N, N), "the variable before the helper"),
    ({"helper": GOOD},                                      {},         (A, A, U, N), "the helper before the keyring"),
    ({"helper": BAD},                                       VARIABLE,   (A, U, N, N), "a broken one that is not reached"),
    ({"helper": BAD},                                       {},         (A, A, B, N), "a broken helper ends it"),
    ({"helper": GOOD},        {"ANTHROPIC_API_KEY": "a b"},             (A, B, N, N), "a broken variable ends it"),
    ({"helper": GOOD},        {"ANTHROPIC_API_KEY": " "},               (A, A, U, N), "blanks are not a value"),
    ({"helper": GOOD},        {"ANTHROPIC_API_KEY": "x" * 8193},        (A, B, N, N), "longer than any key"),
    ({},                      {"OPENAI_API_KEY": OTHER},                (A, A, A, M), "another provider's"),
    ({"account": "work", "helper": GOOD},                   VARIABLE,   (A, S, S, M), "an account is the keyring's"),
    ({"configured": "work"},                                VARIABLE,   (A, U, N, N), "a configured one is only a choice"),
    ({"local": True, "helper": GOOD},                       {},         (A, A, S, S), "a server on this machine"),
    ({"local": True},                                       VARIABLE,   (A, U, N, N), "the same with a variable"),
    ({"local": True, "account": "work"},                    {},         (A, A, A, M), "the same with an account"),
]
# fmt: on


@pytest.mark.parametrize(("given", "environ", "states", "why"), ORDER, ids=[row[3] for row in ORDER])
def test_the_order(
    given: dict,
    environ: dict[str, str],
    states: tuple[SourceState, ...],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    search = look(KeyRequest("anthropic", {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **environ}, **given))
    assert tuple(each.state for each in search.tried) == states
    assert [each.source for each in search.tried] == list(KeySource)
    assert (search.found is not None) == (SourceState.USED in states)
    shown = repr(search) + repr(search.tried)
    assert KEY not in shown
    assert OTHER not in shown
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"


@pytest.mark.threat("T20")
def test_a_refusal_names_the_source_that_was_asked_and_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    here = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OPENAI_API_KEY": KEY}
    with pytest.raises(SecretError) as caught:
        find(KeyRequest("anthropic", here, account="work"))
    text = str(caught.value.problem)
    assert "`ringfence` / `anthropic:work`" in text, "only the keyring has accounts"
    assert "ANTHROPIC_API_KEY" not in text, "which would be skipped"
    assert KEY not in text + repr(caught.value)


@pytest.mark.threat("T20")
def test_so_does_one_that_a_broken_helper_ends(tmp_path: Path) -> None:
    with pytest.raises(SecretError) as caught:
        find(KeyRequest("anthropic", {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}, helper=BAD))
    assert caught.value.problem.why == (
        "helper command: it ended with exit code 3 (tried before: `--api-key-stdin`: not given; "
        "environment variable `ANTHROPIC_API_KEY`: not set)"
    )


# ---- whole runs

# Everything that would lead to the keyring, and then to the key itself, tried by a program that the policy lets run.
LEADS = """
import glob, os, socket
for name in ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"):
    if name in os.environ: print("G" + "OT", name)
for entry in open("bus.txt").read().split(";"):
    kind, _, path = entry.partition(",")[0].removeprefix("unix:").partition("=")
    try:
        socket.socket(socket.AF_UNIX).connect(chr(0) + path if kind == "abstract" else path)
        print("G" + "OT", kind)
    except OSError as error: print(kind, error)
"""
FILES = """
print(dict(os.environ))
places = [*glob.glob("/proc/*/environ"), *glob.glob("/proc/*/cmdline")]
for top in (os.path.expanduser("~"), "/tmp", "/dev/shm", "/run", "/var/tmp"):
    places += [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
for place in places:
    if os.path.isfile(place):
        try: print(place, open(place, "rb").read(1 << 20))
        except OSError as error: print(place, error)
print("looked")
"""
LOOK = f"python3 -c '{LEADS}{FILES}'"


def answer(turn: int, headers: str, body: bytes) -> Delta:
    """Asks for one command, then it is done. The watches look while `agent` waits for the answer."""
    Watch.look_all()
    first = b'"role":"tool"' not in body.replace(b'": "', b'":"')
    return calling(LOOK) if first else {"content": "done"}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with serving(answer) as server:
        yield server


@pytest.fixture(params=USERS)
def place(request: pytest.FixtureRequest) -> Iterator[KeyringHarness]:
    with harness(request.param, executed=True) as made:
        yield made


def adopt_orphans(yes: bool) -> None:
    """Make this process the parent of every descendant whose own parent ends, so that it stays a descendant."""
    assert (
        ctypes.CDLL(None, use_errno=True).prctl(36, int(yes), 0, 0, 0) == 0
    )  # SOURCE: prctl(2), PR_SET_CHILD_SUBREAPER


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes that a process started, directly or through others."""
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                yield child
                yield from descendants(child)


class Watch:
    """Looks for the key in the arguments and the environment of every process that this one started, again and again.

    Attributes:
        found: the kinds of files in which the key was.
        seen: the processes that it looked at.
        running: the watches that look at present.
    """

    running: ClassVar[list["Watch"]] = []

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.seen: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on)

    def look(self) -> None:
        """Look at every process once."""
        for pid in descendants(os.getpid()):
            for name in ("cmdline", "environ"):
                with contextlib.suppress(OSError):
                    if KEY.encode() in Path(f"/proc/{pid}/{name}").read_bytes():
                        self.found.add(name)
            self.seen.add(pid)

    @classmethod
    def look_all(cls) -> None:
        """Let every running watch look once."""
        for watch in cls.running:
            watch.look()

    def _look_on(self) -> None:
        while not self._over.wait(0.05):  # and whenever the program waits for an answer
            self.look()

    def __enter__(self) -> "Watch":
        adopt_orphans(True)
        self.running.append(self)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.running.remove(self)
        self._over.set()
        self._thread.join()
        adopt_orphans(False)


@pytest.mark.parametrize(
    ("words", "environ", "where"),
    [((KEY,), {}, "cmdline"), ((), {"OPENAI_API_KEY": KEY}, "environ")],
    ids=["an argument", "a variable"],
)
def test_the_watch_sees_a_key_where_one_is(words: tuple[str, ...], environ: dict[str, str], where: str) -> None:
    """Also in a process whose parent has ended."""
    script = 'exec 3<&0; /bin/sh -c "read line; :" "$0" "$@" <&3 &'
    reader, writer = os.pipe()
    with os.fdopen(writer, "w"), os.fdopen(reader) as lifeline, Watch() as watch:
        subprocess.run(["/bin/sh", "-c", script, *(words or ("sh",))], stdin=lifeline, env=environ, check=True)
        watch.found.clear()
        until(lambda: watch.found)
    assert watch.found == {where}


@pytest.mark.threat("T07")
@pytest.mark.threat("T20")
@pytest.mark.threat("T08")
@pytest.mark.parametrize("source", ["stdin", "keyring"])
def test_a_key_is_in_one_header_and_in_no_process(place: KeyringHarness, model: ModelServer, source: str) -> None:
    """No argument and no environment of any process, no file, no event, and nothing that leads to it in the sandbox."""
    words = ["run", "--json", "--model", "openai:m", "--mode", "trust-project"]
    with place.secret_service():
        (place.work / "bus.txt").write_text(place.environ["DBUS_SESSION_BUS_ADDRESS"])
        control = place.python(LEADS)
        assert control.count("GOT") == 5, f"unconfined, every way leads to the keyring: {control}"
        if source == "keyring":
            assert place.agent("auth", "login", "openai", "--account", "work", stdin=KEY).returncode == 0
            words += ["--account", "work"]
        else:
            words += ["--api-key-stdin"]
        with Watch() as watch:
            done = place.agent(*words, "hello", stdin=KEY + "\nmore\n", env={"OPENAI_BASE_URL": model.url})
    assert done.returncode == 0, done.stdout + done.stderr
    assert watch.seen, "it looked while `agent` waited for an answer"
    assert watch.found == set()
    assert "looked" in done.stdout
    assert "GOT" not in done.stdout
    assert KEY not in done.stdout + done.stderr
    assert len(model.requests) == 2
    for headers, body in model.requests:
        assert headers.count(KEY) == 1
        assert f"authorization: Bearer {KEY}\n" in headers
        assert KEY.encode() not in body
    assert any(path.name == "audit.db" for path in place.files())
    assert [path for path in place.files() if KEY.encode() in path.read_bytes()] == []


@pytest.mark.thorough
@pytest.mark.threat("T20")
@pytest.mark.parametrize("refused", [False, True], ids=["taken", "refused"])
def test_a_helpers_key_leaves_no_trace(place: KeyringHarness, refused: bool) -> None:
    """The server takes the key, or refuses it and repeats every header that it was sent."""

    def reply(turn: int, headers: str, body: bytes) -> Delta | str:
        Watch.look_all()
        return headers if refused else {"content": "done"}

    vault = place.base / "vault"
    vault.write_text(KEY)
    vault.chmod(0o600)
    place.own(vault)
    pem = certificate(place.base / "server.key", ANYWHERE)
    (place.base / "authority.crt").write_text("-----BEGIN CERT" + pem.read_text().partition("-----BEGIN CERT")[2])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    place.configure(f'[auth.openai]\nhelper = ["cat", "{vault}"]\n')
    status = place.agent("auth", "status", "openai")
    assert "the key comes from helper command" in status.stdout
    with serving(reply) as model, Watch() as watch:
        model.socket = context.wrap_socket(model.socket, server_side=True)
        address = f"https://{ANYWHERE}:{model.server_address[1]}/v1"
        environ = {"OPENAI_BASE_URL": address, "SSL_CERT_FILE": str(place.base / "authority.crt")}
        done = place.agent("run", "--model", "openai:m", "hi", env=environ)
    assert done.returncode == int(refused), done.stdout + done.stderr
    assert model.requests[0][0].count(KEY) == 1
    assert watch.seen
    assert watch.found == set()
    assert KEY not in done.stdout + done.stderr + status.stdout + status.stderr
    assert [path for path in place.files() if KEY.encode() in path.read_bytes()] == [vault]


@pytest.mark.thorough
def test_the_variable_comes_before_the_helper_which_is_not_run(place: KeyringHarness) -> None:
    mark = place.home / "ran"
    place.configure(f'[auth.openai]\nhelper = ["touch", "{mark}"]\nhelper_timeout = 60\n')
    assert place.agent("auth", "status", "openai", env={"OPENAI_API_KEY": KEY}).returncode == 0
    assert not mark.exists()
    done = place.agent("run", "--model", "openai:m", "hello")
    assert done.returncode == 2
    assert "helper command: it printed nothing" in done.stderr
    assert mark.exists()
    place.configure('[auth.openai]\nhelper = ["sleep", "600"]\nhelper_timeout = 0.3\n')
    assert "did not end within 0.3 seconds" in place.agent("run", "--model", "openai:m", "hello").stderr


@pytest.mark.threat("T81")
@pytest.mark.threat("T23")
@pytest.mark.parametrize("name", ["config.toml", "config.local.toml"])
def test_no_repository_names_a_helper_or_an_account(name: str) -> None:
    with harness(USERS[0]) as place:
        mark = place.home / "ran"
        folder = place.work / ".ringfence"
        folder.mkdir()
        (folder / name).write_text(
            f'[auth.openai]\nhelper = ["touch", "{mark}"]\naccount = "theirs"\nhelper_timeout = 99\n'
        )
        done = place.agent("auth", "status", "openai")
        keys = "`auth.openai.helper`, `auth.openai.account`, `auth.openai.helper_timeout`"
        said = f"of the repository may only tighten; ignored: {keys}, which no repository may set, even"
        assert done.stderr.startswith(f"note: `.ringfence/{name}` {said}"), "one line for all"
        assert done.stderr.count("\n") == 1
        assert "helper command: none is configured" in done.stdout
        assert "theirs" not in done.stdout
        shown = place.agent("trust", "show")
        assert "no repository may set these, even if it is trusted" in shown.stdout
        assert "nothing in this repository needs an approval" in shown.stdout
        state = json.loads(place.agent("trust", "show", "--json").stdout)
        run = ("run", "--model", "openai:m", "--trust-config", state["sha256"], "hello")
        assert "no API key for `openai`" in place.agent(*run).stderr
        assert not mark.exists(), "trusted or not"


# fmt: off
SETTINGS = [
    ('helper = "pass show x"',              "a list of texts",           "a line for a shell"),
    ("helper = []",                         "contains no program",          "no words"),
    ('helper = [""]',                       "a list of texts",           "an empty word"),
    ('helper = ["./x"]',                    "in every folder",           "a program of whatever folder"),
    ('helper = ["x\\u0000"]',             "contains no program",          "a NUL"),
    ("helper_timeout = 0",                  "a number of seconds",       "no time"),
    ('account = "a/b"',                     "an account has at most 64 letters",    "no name"),
    ("account = 7",                         "a text in quotes",          "a number"),
    (f'key = "{KEY}"',                      "there is no such key",      "a key in the file"),
]
# fmt: on


@pytest.mark.parametrize(("line", "said", "why"), SETTINGS, ids=[row[2] for row in SETTINGS])
def test_what_the_configuration_may_say(line: str, said: str, why: str) -> None:
    with harness(USERS[0]) as place:
        place.configure(f"[auth.openai]\n{line}\n")
        done = place.agent("auth", "status")
        assert done.returncode == 2
        assert said in done.stderr
        assert "config.toml:2" in done.stderr
        assert KEY not in done.stderr


# words, standard input, what is said
# fmt: off
STDIN = [
    (("run", "--api-key-stdin"),                                         KEY, "both the key and the prompt"),
    (("--api-key-stdin",),                                               KEY, "both the key and the prompt"),
    (("run", "--api-key-stdin", "--prompt-file", "/dev/stdin"),          KEY, "both the key and the prompt"),
    (("run", "--api-key-stdin", "--account", "work", "hi"),              KEY, "exclude each other"),
    (("run", "--account", "a b", "hi"),                                  "",  "cannot be used"),
    (("run", "--api-key-stdin", "--model", "openai:m", "hi"),            "",  "standard input is empty"),
    (("run", "--api-key-stdin", "--model", "openai:m", "hi"),            "\n" + KEY, "begins with an empty line"),
    (("run", "--api-key-stdin", "--model", "openai:m", "hi"),            KEY + " x",  "blanks or other characters"),
    (("run", "--api-key-stdin", "--model", "openai:m", "hi"),            "x" * 9000,  "too long"),
    (("run", "--api-key-stdin", "--model", "scripted:x.toml", "hi"),     KEY, "takes no API key"),
    (("run", "--account", "work", "--model", "scripted:x.toml", "hi"),   "",  "takes no API key"),
]
# fmt: on


@pytest.mark.parametrize(("words", "stdin", "said"), STDIN, ids=[row[2] for row in STDIN])
def test_mistakes_with_a_key_on_standard_input(words: tuple[str, ...], stdin: str, said: str) -> None:
    with harness(USERS[0]) as place:
        done = place.agent(*words, stdin=stdin)
        assert done.returncode == 2, done.stdout
        assert said in done.stderr
        assert KEY not in done.stdout + done.stderr


def test_a_conversation_whose_key_is_piped_in(model: ModelServer) -> None:
    """The pipe holds the key, and the talk goes on at the terminal that it was started at."""
    with harness(USERS[0]) as place:
        (place.work / "bus.txt").touch()
        (place.base / "key").write_text(KEY + "\n")
        place.environ |= {"OPENAI_BASE_URL": model.url, "PROMPT_TOOLKIT_NO_CPR": "1"}
        agent = " ".join(place.command)
        script = f"cat {place.base}/key | {agent} --api-key-stdin --model openai:m --mode plan"
        with terminal(place, script, command=["/bin/sh", "-c"]) as there:
            there.until("\x1b[2C")  # the prompt is there
            there.type("hello\r")
            there.until("done (2 requests")
            there.until("\x1b[2C", 2)  # the next prompt: what is typed before it is forgotten
            there.type("\x04")
            assert there.end() in (0, 3), there.seen
            assert KEY not in there.seen
    assert KEY in model.requests[0][0]


def test_at_a_terminal_the_key_is_asked_for(model: ModelServer) -> None:
    with harness(USERS[0]) as place:
        place.environ["OPENAI_BASE_URL"] = model.url
        with terminal(place, "run", "--api-key-stdin", "--model", "openai:m", "--mode", "plan", "hello") as there:
            there.until("it is not shown): ")
            there.type(KEY + "\n")
            there.until("done")
            there.end()
            assert KEY not in there.seen
    assert KEY in model.requests[0][0]


def test_each_account_has_its_key(model: ModelServer) -> None:
    with harness(USERS[0]) as place, place.secret_service():
        (place.work / "bus.txt").touch()
        for name, key in (("home", KEY), ("work", OTHER)):
            assert place.agent("auth", "login", "openai", "--account", name, stdin=key).returncode == 0
        place.environ["OPENAI_BASE_URL"] = model.url
        for name, key in (("home", KEY), ("work", OTHER)):
            model.requests.clear()
            place.agent("run", "--model", "openai:m", "--mode", "plan", "--account", name, "hello")
            assert [headers.count(key) for headers, _ in model.requests] == [1] * len(model.requests) != []
        missing = place.agent("run", "--model", "openai:m", "--account", "play", "hello")
        assert "no account `play`; it has `home`, `work`" in missing.stderr
        place.configure('[auth.anthropic]\naccount = "work"\n')
        assert "`ringfence` / `anthropic:work`" in place.agent("auth", "status", "anthropic").stdout
