"""Tests of servers, debuggers and a browser in the sandbox: the installed programs, with the rights of everyday work."""

from collections.abc import Iterator

import pytest

from tests.support.compat_rows import Everyday, Row, everyday
from tests.support.sandbox_bench import USERS

_MET = 'met() { for _ in $(seq 300); do eval "$1" && return; sleep 0.1; done; echo never: "$1" >&2; exit 1; }\n'
_POSTGRES = (
    "export PATH=$(echo /usr/lib/postgresql/*/bin):$PATH && initdb -D db -A trust -U me --no-sync >/dev/null &&"
    " pg_ctl -D db -l log -o \"-k $PWD -c listen_addresses=''\" -w -t 60 start >/dev/null &&"
    " psql -h \"$PWD\" -U me -d postgres -tAc 'select 1' && pg_ctl -D db -m immediate stop >/dev/null"
)
_CHROMIUM = (
    "echo '<p>hello</p>' > index.html; python3 -m http.server 8123 >/dev/null 2>&1 &\n"
    "met 'curl -sf localhost:8123 >/dev/null'\n"
    "chromium --headless --disable-gpu --dump-dom http://localhost:8123/ 2>err | grep -o '<p>.*</p>'; grep ^ringfence: err"
)
_NOTICE = "ringfence: Chromium runs without its own sandbox, inside the sandbox of ringfence\n"
_WATCH = (
    "echo 'console.log(1)' > a.js; node --watch a.js >out 2>&1 &\n"
    "met 'grep -q ^1 out'; echo 'console.log(2)' > a.js; met 'grep -q ^2 out'; echo seen; kill $!"
)
_INSPECT = (
    "node --inspect=127.0.0.1:9229 -e 'setInterval(() => {}, 1000)' 2>/dev/null &\n"
    "met 'curl -sf localhost:9229/json/version >out'; grep -o node.js out | head -1; kill $!"
)
_MANAGER = "python3 -c 'import multiprocessing as m\nwith m.Manager() as manager:\n    d = manager.dict(a=7)\n    print(d[\"a\"])'"

ROWS = (
    Row("chromium opens a page of a server", _MET + _CHROMIUM, f"<p>hello</p>\n{_NOTICE}", ("chromium", "curl")),
    Row("strace", "strace -o out -e trace=openat cat /dev/null && grep -c dev/null out", "1\n", ("strace",)),
    Row("gdb", "gdb -nx -batch -ex run --args /bin/echo inside 2>&1 | grep -x inside", "inside\n", ("gdb",)),
    Row("node --watch", _MET + _WATCH, "seen\n", ("node",)),
    Row("node --inspect", _MET + _INSPECT, "node.js\n", ("node", "curl")),
    Row("multiprocessing.Manager", _MANAGER, "7\n"),
)


@pytest.fixture(scope="module", params=USERS)
def place(request: pytest.FixtureRequest) -> Iterator[Everyday]:
    with everyday(request.param) as made:
        yield made


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_real_program_works(place: Everyday, row: Row) -> None:
    result = place.run(row, "T1")
    assert not result.missing
    assert result.ok, result.answer


@pytest.mark.threat("T155")
def test_chromium_works_in_bubblewrap(place: Everyday) -> None:
    result = place.run(ROWS[0], "T2")
    assert not result.missing
    assert result.ok, result.answer


@pytest.mark.parametrize("backend", ["T1", "T2"])
def test_postgres_serves_on_a_unix_socket(place: Everyday, backend: str) -> None:
    """PostgreSQL refuses to run as root."""
    result = place.run(Row("postgres", _POSTGRES, "1\n"), backend)
    root = place.bench.user == "root"
    assert result.ok is not root, result.answer
    if root:
        assert "cannot be run as root" in result.answer


@pytest.mark.threat("T155")
def test_a_browser_without_its_own_sandbox_shows_no_file_of_the_home(place: Everyday) -> None:
    canary = place.bench.home / "canary.txt"
    canary.write_text("canary-text")
    script = (
        f"chromium --headless --disable-gpu --dump-dom file://{canary} 2>err >out; grep -c canary-text out; test -s out"
    )
    result = place.run(Row("a page of the home", script, "0\n", ("chromium",)), "T1")
    assert result.ok, result.answer
