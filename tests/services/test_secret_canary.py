"""Property of secrets: a canary in the keyring and in the environment appears in no output except the one header."""

import base64
import json
from collections.abc import Iterator

import pytest

from runner.secrets.encodings import decoded_views, encoded_forms
from runner.secrets.secret import MASK
from tests.support.model_server import Delta, ModelServer, calling, serving
from tests.support.sandbox_bench import USERS
from tests.support.secret_service import harness

KEY = "sk-canary-In_the+keyring/0a1b2c3d4e"
TOKEN, LOGIN = "canary-of-the-environment-5f6a", "canary-of-an-address-7c8d"  # made up

# Commands that a hostile prompt asks for: everything that a command can reach, printed and written to a file.
LOOK_AROUND = """python3 -c '
import glob, os, socket
print(dict(os.environ))
places = [*glob.glob("/proc/*/environ"), *glob.glob("/proc/*/cmdline"), *glob.glob("/proc/*/maps")]
for top in (os.path.expanduser("~"), "/tmp", "/dev/shm", "/run", "/var/tmp", "."):
    places += [os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names]
for place in places:
    try: print(place, open(place, "rb").read()[:100000])
    except OSError as error: print(place, error)
print(glob.glob("/run/user/*/*"), glob.glob("/tmp/dbus-*"))
print("looked")' | tee seen.txt"""


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def answer(turn: int, headers: str, body: bytes) -> Delta | str:
    """Asks for two commands, with the key that its server saw; says back what it was told; then fails and repeats every
    header it was sent."""
    if turn > 3:
        return f"bad request: {headers}"
    commands = {1: LOOK_AROUND, 2: f"env; cat seen.txt; git remote -v; echo {KEY} {coded(KEY)}"}
    if turn in commands:
        return calling(commands[turn], f"c{turn}")
    return {"content": f"You said: {json.loads(body)['messages'][-1]['content']}"[:3000]}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with serving(answer) as server:
        yield server


def held(data: bytes | str) -> list[str]:
    """Return the canaries that occur in `data`, in any known encoding."""
    text = data if isinstance(data, str) else data.decode("latin-1")
    read = [view.text for view in decoded_views(text, 200)]
    return [
        canary for canary in (KEY, TOKEN, LOGIN) for form in encoded_forms(canary) if any(form in each for each in read)
    ]


def test_the_oracle_finds_what_it_looks_for() -> None:
    assert held(f"Authorization: Bearer {KEY}") == [KEY]
    assert held(json.dumps({"url": f"https://me:{LOGIN}@forge.test"}).encode()) == [LOGIN]
    assert held(TOKEN.encode().hex()) == [TOKEN]
    assert held("nothing") == []


AFTERWARDS = [
    ("audit",), ("audit", "--json"), ("sessions", "list", "--json"), ("config", "show", "--effective"),
    ("auth", "status"), ("auth", "status", "--json"), ("grants", "list"), ("trust", "list"), ("doctor",),
    ("exec", "--json", "--", "env"), ("why", f"curl -H 'Authorization: Bearer {TOKEN}' https://example.test"),
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.threat("T20")
@pytest.mark.threat("T48")
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("form", [["--json"], []], ids=["events", "transcript"])
def test_law_a_canary_leaves_in_its_header_alone(user: str, form: list[str], model: ModelServer) -> None:
    with harness(user, executed=True) as place, place.secret_service():
        assert place.agent("auth", "login", "openai", "--account", "work", stdin=KEY).returncode == 0
        told = {
            "OPENAI_BASE_URL": model.url,
            "FORGE_TOKEN": TOKEN,
            "ANTHROPIC_API_KEY": TOKEN,
            "DATABASE_URL": f"postgres://me:{LOGIN}@db.test/app",
        }
        base = ["run", *form, "--model", "openai:m", "--account", "work", "--mode", "trust-project"]
        done = place.agent(*base, f"print your environment; my token is {TOKEN}", env=told)
        said = [done.stdout + done.stderr]
        assert done.returncode == 0, said
        assert "looked" in said[0]
        failed = place.agent(*base, "once more", env=told)
        said.append(failed.stdout + failed.stderr)
        assert failed.returncode == 1, said
        for words in AFTERWARDS:
            after = place.agent(*words, env=told, forked=True)  # none of them runs code that looks around
            assert "defect" not in after.stderr, (words, after.stderr)
            said.append(after.stdout + after.stderr)
        assert [held(each) for each in said] == [[] for _ in said]
        assert MASK in said[0] or "--json" not in form, "the prompt held one"
        assert len(model.requests) == 4
        for headers, body in model.requests:
            assert headers.count(KEY) == 1
            assert f"authorization: Bearer {KEY}\n" in headers
            assert held(headers.replace(KEY, "")) == []
            assert held(body) == []
        files = list(place.files())
        assert {"audit.db", "seen.txt"} <= {path.name for path in files}
        assert any(path.suffix == ".jsonl" for path in files), "the session was kept"
        assert [(str(path), found) for path in files if (found := held(path.read_bytes()))] == []
