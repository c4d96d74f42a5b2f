"""Tests of keys in a real Secret Service: gnome-keyring-daemon on its own message bus, as root and as another user."""

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from runner.frontends.tui.panel import GUARD
from runner.secrets.resolve import KEYED
from tests.support.sandbox_bench import USERS
from tests.support.secret_service import KeyringHarness, harness, terminal
from tests.support.terminal_screen import ScreenTerminal

KEY, OTHER = "sk-canary-4bd09e71aa5c", "sk-canary-c3318f60de27"


@pytest.fixture(params=USERS)
def place(request: pytest.FixtureRequest) -> Iterator[KeyringHarness]:
    with harness(request.param) as made:
        yield made


def said(place: KeyringHarness, *words: str, code: int = 0, **told: str) -> str:
    return checked(place.agent(*words, stdin=told.pop("stdin", ""), env=told), code)


def checked(done: subprocess.CompletedProcess[str], code: int) -> str:
    assert done.returncode == code, done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    assert OTHER not in done.stdout + done.stderr
    return done.stdout + done.stderr


def sources(
    place: KeyringHarness, provider: str = "anthropic", *words: str, code: int = 0, **told: str
) -> dict[str, str]:
    """Return the state of each source according to `auth status`."""
    row = json.loads(said(place, "auth", "status", provider, "--json", *words, code=code, **told))
    return {each["source"]: each["state"] for each in row["tried"]}


def kept(place: KeyringHarness, name: str) -> str:
    """Return the entry of the Secret Service for `name`, read without the product."""
    return place.python(
        "import secretstorage, sys\n"
        "kept = secretstorage.get_default_collection(secretstorage.dbus_init())\n"
        "print([each.get_secret().decode() for each in kept.search_items({'service': 'ringfence', 'username': sys.argv[1]})])",
        name,
    ).strip()


@pytest.mark.threat("T20")
def test_a_key_is_stored_shown_as_there_and_removed(place: KeyringHarness) -> None:
    with place.secret_service():
        assert "in the Secret Service" in said(place, "auth", "login", "anthropic", stdin=KEY + "\n")
        assert kept(place, "anthropic") == str([KEY])
        assert sources(place) == {"stdin": "absent", "variable": "absent", "helper": "absent", "keyring": "used"}
        assert "the key is removed" in said(place, "auth", "logout", "anthropic")
        assert kept(place, "anthropic") == "[]"
        assert sources(place, code=1)["keyring"] == "absent"
        assert "no account `default`" in said(place, "auth", "logout", "anthropic", code=1)
    assert [path for path in place.files() if KEY.encode() in path.read_bytes()] == []
    names = place.home / ".local/state/ringfence/accounts.json"
    assert stat.S_IMODE(names.stat().st_mode) == 0o600


@pytest.mark.thorough
@pytest.mark.threat("T20")
def test_what_is_typed_is_not_shown(place: KeyringHarness) -> None:
    with place.secret_service():
        with terminal(place, "auth", "login", "openai", "--account", "work") as there:
            there.until("it is not shown): ")
            there.type(KEY + "\n")
            assert there.end() == 0, there.seen
            assert KEY not in there.seen
            assert "account `work`" in there.seen
        assert kept(place, "openai:work") == str([KEY])
        for answer, code, left, why in (
            ("n\n", 1, KEY, "a no"),
            ("\n", 1, KEY, "Enter is a no"),
            ("yes\n", 0, OTHER, "an approval"),
        ):
            with terminal(place, "auth", "login", "openai", "--account", "work") as there:
                there.until("Replace it? [y/N] ")
                there.type(answer)
                if code == 0:
                    there.until("it is not shown): ")
                    there.type(OTHER + "\n")
                assert there.end() == code, (why, there.seen)
                assert OTHER not in there.seen
            assert kept(place, "openai:work") == str([left]), why


@pytest.mark.parametrize(("typed", "code"), [("\n", 2), ("\x04", 2), ("two words\n", 2), ("\x03", 130)])
def test_nothing_is_stored_of_what_is_no_key(typed: str, code: int) -> None:
    with harness(USERS[0]) as place, place.secret_service():
        with terminal(place, "auth", "login", "openai") as there:
            there.until("it is not shown): ")
            there.type(typed)
            assert there.end() == code, there.seen
            assert "two words" not in there.seen
        assert kept(place, "openai") == "[]"


def test_several_accounts(place: KeyringHarness) -> None:
    with place.secret_service():
        said(place, "auth", "login", "anthropic", "--account", "home", stdin=KEY)
        told = said(place, "auth", "login", "anthropic", "--account", "work", stdin=OTHER)
        assert "`home` is still the default" in told
        assert "anthropic:home" in said(place, "auth", "status", "anthropic")
        assert "anthropic:work" in said(place, "auth", "status", "anthropic", "--account", "work")
        assert "`work` is now the default" in said(place, "auth", "use", "anthropic", "work")
        told = said(place, "auth", "status", "anthropic")
        assert "anthropic:work" in told
        assert "home, work (chosen)" in told
        assert "they are `home`, `work`" in said(place, "auth", "logout", "anthropic", code=2)
        assert "no account `play`" in said(place, "auth", "use", "anthropic", "play", code=1)
        said(place, "auth", "logout", "anthropic", "--account", "work")
        assert kept(place, "anthropic:home") == str([KEY])
        assert "home (chosen)" in said(place, "auth", "status", "anthropic")
        said(place, "auth", "login", "openai", stdin=OTHER)
        told = said(place, "auth", "logout", "--all")
        assert told.count("the key is removed") == 2
        assert "no key of ringfence" in said(place, "auth", "logout", "--all")


def test_an_account_that_is_named_comes_before_what_knows_no_accounts(place: KeyringHarness) -> None:
    with place.secret_service():
        said(place, "auth", "login", "anthropic", "--account", "work", stdin=KEY)
        assert sources(place, ANTHROPIC_API_KEY=OTHER)["variable"] == "used"
        told = sources(place, "anthropic", "--account", "work", ANTHROPIC_API_KEY=OTHER)
        assert (told["variable"], told["keyring"]) == ("skipped", "used")
        told = sources(place, "anthropic", "--account", "play", code=1, ANTHROPIC_API_KEY=OTHER)
        assert told["keyring"] == "absent"


def test_a_key_that_is_there_is_replaced_only_on_request(place: KeyringHarness) -> None:
    with place.secret_service():
        said(place, "auth", "login", "openai", stdin=KEY)
        assert "add --replace" in said(place, "auth", "login", "openai", stdin=OTHER, code=2)
        assert kept(place, "openai") == str([KEY])
        said(place, "auth", "login", "openai", "--replace", stdin=OTHER)
        assert kept(place, "openai") == str([OTHER])
        told = said(place, "auth", "login", "openai", "--replace", stdin=KEY, OPENAI_API_KEY="x")
        assert "`OPENAI_API_KEY` is set, and is used before the keyring" in told


# fmt: off
PIPED = [
    (b"",                               "is empty",           "nothing"),
    (b"\n" + KEY.encode(),              "empty line",         "an empty line first"),
    (KEY.encode() + b"\nmore\n",        "more than one line", "two lines"),
    (KEY.encode() + b" " + b"x",        "blanks",             "a blank"),
    (b"\0\xff" + KEY.encode(),          "other characters",   "not text"),
    (b"x" * 8193,                       "too long",           "longer than any key"),
    (b"x" * (1 << 20),                  "too long",           "1 MB"),
]
# fmt: on


@pytest.mark.parametrize(("piped", "why", "what"), PIPED, ids=[row[2] for row in PIPED])
def test_what_is_piped_in_is_one_line(piped: bytes, why: str, what: str) -> None:
    with harness(USERS[0]) as place, place.secret_service():
        done = place.agent("auth", "login", "openai", stdin=piped)
        assert done.returncode == 2
        assert why in done.stderr
        assert KEY not in done.stdout + done.stderr
        assert kept(place, "openai") == "[]"


# kind of service, what the service says, what we say, why
# fmt: off
TROUBLE = [
    ("none",   "", "no usable keyring",             "a bus without any keyring"),
    ("locked", "", "it is locked",                  "locked, and nobody to ask"),
    ("mute",   "", "did not answer within 0.5 s",   "a service that never answers"),
    ("refuse", KEY, "it refused the request",       "one that refuses everything"),
    ("garble", KEY, "it failed",                    "answers of the wrong types"),
]
# fmt: on


@pytest.mark.thorough
@pytest.mark.threat("T80")
@pytest.mark.parametrize(("kind", "answer", "why", "what"), TROUBLE, ids=[row[3] for row in TROUBLE])
def test_a_keyring_that_does_not_work_is_a_problem(kind: str, answer: str, why: str, what: str) -> None:
    with harness(USERS[-1]) as place, place.secret_service(kind, answer):
        run = place.impatient if kind == "mute" else place.agent
        told = checked(run("run", "--model", "anthropic:m", "hello"), 2)
        assert (why if kind != "none" else "no key was found") in told
        assert "not given" not in told, "`auth status` lists every source"
        assert "set `ANTHROPIC_API_KEY`" in told
        assert "agent auth login" not in told, "no advice that does not work here"
        assert "Error" not in told
        assert why in checked(run("auth", "status"), 1), "and a keyring that hangs is waited for once"
        if kind != "mute":
            for words in (("login", "openai"), ("logout", "openai"), ("use", "openai", "work")):
                assert why in said(place, "auth", *words, stdin=KEY, code=1), words


@pytest.mark.thorough
@pytest.mark.threat("T80")
def test_a_keyring_that_stops_is_a_problem() -> None:
    with harness(USERS[-1]) as place, place.secret_service() as service:
        said(place, "auth", "login", "openai", stdin=KEY)
        with service.stopped():
            told = checked(place.impatient("auth", "status", "openai"), 1)
            assert "did not answer within 0.5 seconds" in told
        assert sources(place, "openai")["keyring"] == "used"


# fmt: off
NO_BUS = [
    ({},                                                              "nothing leads to a bus"),
    ({"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent/bus"},      "a bus that is gone"),
    ({"DBUS_SESSION_BUS_ADDRESS": "nonsense"},                        "no address"),
    ({"DBUS_SESSION_BUS_ADDRESS": ""},                                "an empty one"),
]
# fmt: on


@pytest.mark.parametrize(("told", "why"), NO_BUS, ids=[row[1] for row in NO_BUS])
def test_without_a_bus_there_is_no_keyring(told: dict[str, str], why: str) -> None:
    with harness(USERS[0]) as place:
        text = said(place, "auth", "login", "anthropic", stdin=KEY, code=1, **told)
        assert "this machine has no usable keyring" in text
        assert "set `ANTHROPIC_API_KEY`" in text
        assert "`helper` in `[auth.anthropic]`" in text


def test_doctor_says_whether_there_is_a_keyring_and_what_commands_are_lent() -> None:
    with harness(USERS[0]) as place:

        def findings() -> dict[str, dict[str, str]]:
            found = json.loads(place.agent("doctor", "--json").stdout)["findings"]
            return {each["name"]: each for each in found}

        without = findings()
        assert "credentials" not in without, "no noise for those who have none"
        weak = ("weak", "this machine has no usable keyring")
        assert (without["keyring"]["state"], without["keyring"]["detail"]) == weak
        assert "--api-key-stdin" in without["keyring"]["fix"]
        row = '[[credential]]\nname = "forge"\nhosts = ["h.example"]\nbasic = "u"\nenv = "FORGE"\n'
        file = place.home / ".config/ringfence/config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(row)
        with place.secret_service():
            found = findings()
        assert (found["keyring"]["state"], found["keyring"]["fix"]) == ("ok", "")
        assert found["keyring"]["detail"].startswith("Secret Service; ")
        assert found["credentials"]["detail"].startswith("forge: added to requests of commands, which never see it")


# what the service holds, what is said
# fmt: off
ODD = [
    (b"",                         "absent", "",                                  "nothing"),
    (b"\xff\xfe" + KEY.encode(),  "broken", "not text",                          "bytes"),
    (KEY.encode() + b"\nx: 1",    "broken", "characters that a key never has",   "two lines"),
    (b"x" * (1 << 16),            "broken", "characters that a key never has",   "64 kB"),
    (KEY.encode() + b"\n",        "used",   "",                                  "a key with its line end"),
]
# fmt: on


@pytest.mark.threat("T80")
@pytest.mark.parametrize(("value", "state", "why", "what"), ODD, ids=[row[3] for row in ODD])
def test_an_item_that_is_no_key(value: bytes, state: str, why: str, what: str) -> None:
    with harness(USERS[0]) as place, place.secret_service() as service:
        service.item("openai", value)
        assert sources(place, "openai", code=int(state != "used"))["keyring"] == state
        assert why in said(place, "auth", "status", "openai", code=int(state != "used"))
        if state == "broken":
            assert "has a key already" in said(place, "auth", "login", "openai", stdin=KEY, code=2)
        said(place, "auth", "login", "openai", "--replace", stdin=KEY)
        assert kept(place, "openai") == str([KEY])
        service.item("openai", value)
        said(place, "auth", "logout", "openai")
        assert kept(place, "openai") == "[]"


@pytest.mark.threat("T80")
@pytest.mark.parametrize("value", [OTHER.encode(), b"\xff\xfe"], ids=["a key", "bytes"])
def test_what_another_program_keeps_under_our_name_does_not_stay_in_front(value: bytes) -> None:
    with harness(USERS[0]) as place, place.secret_service() as service:
        for program in ("another", "a third"):
            service.item("openai", value, program)
        said(place, "auth", "login", "openai", "--replace", stdin=KEY)
        assert kept(place, "openai") == str([KEY])
        service.item("openai", value, "another")
        said(place, "auth", "logout", "openai")
        assert kept(place, "openai") == "[]"


PLAINTEXT = """
from keyring.backend import KeyringBackend
class PlaintextKeyring(KeyringBackend):
    priority = 9
    def get_password(self, service, username): raise SystemExit("asked")
    set_password = delete_password = get_password
"""


@pytest.mark.threat("T80")
@pytest.mark.threat("T20")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("keyrings.alt.file.PlaintextKeyring", "keeps keys as plain text, and is refused"),
        ("keyring.backends.null.Keyring", "that stores nothing"),
        ("keyring.backends.fail.Keyring", "no usable keyring"),
        ("keyring.backends.chainer.ChainerBackend", "that stores nothing"),
        ("json.JSONDecoder", "cannot be loaded"),
        ("no.such.Thing", "cannot be loaded"),
    ],
)
def test_only_the_systems_own_keyrings_are_used(name: str, why: str) -> None:
    """Also when a real one is there: what was configured is never replaced in silence."""
    with harness(USERS[0]) as place, place.secret_service():
        folder = place.work.parent / "lib" / "keyrings" / "alt"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder.parent / "__init__.py").touch()
        (folder / "file.py").write_text(PLAINTEXT)
        told = {"PYTHON_KEYRING_BACKEND": name, "PYTHONPATH": str(folder.parent.parent)}
        for words in (("login", "openai"), ("status", "openai")):
            assert why in said(place, "auth", *words, stdin=KEY, code=1, **told)
        settings = place.home / ".config" / "python_keyring" / "keyringrc.cfg"
        settings.parent.mkdir(parents=True)
        settings.write_text(f"[backend]\ndefault-keyring={name}\nkeyring-path={folder.parent.parent}\n")
        assert why in said(place, "auth", "login", "openai", stdin=KEY, code=1)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("login", "antropic"), "did you mean"),
        (("login", "scripted"), "no key of `scripted` is used"),
        (("login", "openai", "--account", "../x"), "cannot be used"),
        (("login", "openai", "--account", ""), "cannot be used"),
        (("login", "openai", "--account", "a:b"), "cannot be used"),
        (("login", "openai", "--account", "x" * 65), "cannot be used"),
        (("logout",), "no provider is named"),
        (("logout", "--all", "--account", "x"), "exclude each other"),
        (("use", "openai"), "missing argument"),
        (("status", "openai", "--account", "a b"), "cannot be used"),
        (("login", "openai", KEY), "unexpected extra argument"),
    ],
)
def test_mistakes_on_the_command_line(words: tuple[str, ...], told: str) -> None:
    with harness(USERS[0]) as place:
        done = place.agent("auth", *words, stdin=KEY)
        assert done.returncode == 2
        assert told in done.stderr
        assert not (place.home / ".local").exists(), "nothing was made"


@pytest.mark.thorough
@pytest.mark.threat("T80")
def test_the_names_of_accounts_lie_in_a_file_that_nobody_else_could_write(place: KeyringHarness) -> None:
    with place.secret_service():
        said(place, "auth", "login", "openai", "--account", "work", stdin=KEY)
        names = place.home / ".local/state/ringfence/accounts.json"
        assert json.loads(names.read_text()) == {
            "version": 1, "accounts": {"openai": {"names": ["work"], "chosen": "work"}},
        }  # fmt: skip
        for broken in ("{", '{"version": 1, "accounts": {"openai": {"names": [7], "chosen": null}}}', "\0"):
            names.write_text(broken)
            place.own(names)
            assert "cannot be read" in said(place, "auth", "status", "openai", code=1)
            assert sources(place, "openai", "--account", "work")["keyring"] == "used"
        names.unlink(missing_ok=True)
        names.symlink_to(place.own(_decoy(place)))
        assert "symbolic link" in said(place, "run", "--model", "openai:m", "hello", code=2)


def test_a_state_folder_that_anybody_could_have_filled_is_refused_before_a_key_is_stored(place: KeyringHarness) -> None:
    folder = place.home / ".local/state/ringfence"
    folder.mkdir(parents=True)
    for each in (folder.parent.parent, folder.parent, folder):
        place.own(each)
    folder.chmod(0o777)
    with place.secret_service():
        for words in (("auth", "status"), ("auth", "login", "openai"), ("grants", "list")):
            assert "every user may write to it" in said(place, *words, stdin=KEY, code=2), words
        folder.chmod(0o700)
        assert sources(place, "openai", code=1)["keyring"] == "absent", "nothing was stored"


def _decoy(place: KeyringHarness) -> Path:
    path = place.home / "decoy.json"
    path.write_text('{"version": 1, "accounts": {}}')
    return path


def test_as_another_user_the_service_of_root_is_out_of_reach() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be two users")
    with harness("root") as ours, harness("nobody") as theirs, ours.secret_service():
        said(ours, "auth", "login", "openai", stdin=KEY)
        theirs.environ["DBUS_SESSION_BUS_ADDRESS"] = ours.environ["DBUS_SESSION_BUS_ADDRESS"]
        assert "no usable keyring" in said(theirs, "auth", "status", "openai", code=1)


class Window(ScreenTerminal):
    """A terminal that keeps its output."""

    output = b""

    def _take(self, output: bytes) -> None:
        self.output += output
        super()._take(output)


@pytest.mark.thorough
@pytest.mark.threat("T20")
@pytest.mark.parametrize("plain", [False, True])
def test_a_first_session_leads_into_the_login(plain: bool) -> None:
    """A user without a model chooses the login from the list, and the session begins with the stored key."""

    def choose(there: Window, title: str, name: str, keys: list[str]) -> None:
        there.until(title)
        if plain:
            there.type(name, "Enter")
        else:
            there.rest(GUARD)  # the list takes keys so long after it appeared
            there.type(*keys, "Enter")  # Enter counts at once after keys that are no part of a text

    with harness(USERS[0]) as place, place.secret_service():
        with closing(Window(place.work, place.environ, *place.command, *(["--plain"] if plain else []))) as there:
            choose(there, "no model is set up yet", "log in", ["Up", "Up"])  # the last row but one: it goes around
            choose(there, "the key of which provider?", "openai", ["Down"] * KEYED.index("openai"))
            there.until("it is not shown):")
            there.type(KEY, "Enter")
            there.until("a key for it is in the keyring")
            there.until("/quit to leave" if plain else "? help")
            there.type(*(["/quit", "Enter"] if plain else ["C-d"]))
            there.until("LEFT 0")
            assert KEY.encode() not in there.output
            assert b"store the key of a provider in the keyring" in there.output
        assert kept(place, "openai") == str([KEY])
