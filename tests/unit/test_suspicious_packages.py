"""Tests of installs of malicious and misspelled packages, and of the table of malicious packages."""

import json
import re
import sys
from pathlib import Path

import pytest

from policy.grants.offers import choices
from policy.handlers import malicious_packages
from policy.handlers.package_spelling import difference
from policy.handlers.package_tables import NEIGHBOURS, POPULAR
from policy.handlers.suspicious_packages import normalized
from policy.model.tier import Mode, Tier
from policy.model.verdict import Allow
from tests.support import make_malicious_packages
from tests.support.classified import judge
from tests.support.grant_questions import action, evaluation_context, question
from tests.support.make_malicious_packages import BEGIN, END, MODULE, listed, merged, records, rows_of, table_of

# fmt: off
REPORTED = [
    # command, a part of the reason, why
    ("pip install reqeusts",                     "`reqeusts` differs by two swapped letters from `requests`", "swapped letters"),
    ("pip install numpy reqests",                "differs by one letter from `requests`",    "one of several packages"),
    ("pip3 install -U 'Djangoo[argon2]>=4'",     "differs by one repeated letter from `django`", "extras and a range"),
    ("pip install reqests[socks]",               "differs by one letter",                    "extras without quotes"),
    ("python3 -m pip install urlib3",            "`urlib3` is a known malicious package (PyPI, 2017-09-09,", "started as a module"),
    ("pip install jeIlyfish",                    "`jeIlyfish` is a known malicious package", "a capital I for an l"),
    ("pip download python3.dateutil",            "is a known malicious package",             "normalized as PyPI does"),
    ("pip install ultralytics==8.3.41",          "is known to be malicious in version 8.3.41", "a hijacked version"),
    ("pip install 'litellm===1.82.8'",           "is known to be malicious in version 1.82.8", "another sign"),
    ("uv pip install -p 3.12 colourama",         "is a known malicious package",             "after a flag with a value"),
    ("uv add --dev 'pandsa>1'",                  "two swapped letters from `pandas`",        "uv"),
    ("uv run --with reqests main.py",            "differs by one letter",                    "the package of a flag"),
    ("uvx --from colourama tool",                "is a known malicious package",             "the package of a flag, before the program"),
    ("uv tool install scikitlearn",              "differs by one hyphen from `scikit-learn`", "a missing hyphen"),
    ("pipx install colourama",                   "is a known malicious package",             "pipx"),
    ("poetry add litellm@1.82.7",                "is known to be malicious in version 1.82.7", "poetry's sign"),
    ("pipenv install reqests",                   "differs by one letter",                    "pipenv"),
    ("npm i crossenv",                           "`crossenv` is a known malicious package (npm, 2017-08-02, CVE-2017-16074)", "the source"),
    ("npm install --save-dev x@npm:crossenv",    "`crossenv` is a known malicious package",  "an alias"),
    ("npm i axios@1.14.1",                       "is known to be malicious in version 1.14.1", "a hijacked version"),
    ("npm i event-stream@3.3.6",                 "is known to be malicious in version 3.3.6 (npm, 2018-11-26,", "a dependency added by a new owner"),
    ("npm i node-ipc@9.2.3 color@5.0.1",         "`color` is known to be malicious in version 5.0.1", "a second package"),
    ("npm i posthog-js@1.297.3",                 "is known to be malicious in version 1.297.3 (npm, 2025-11-24,", "a version that a worm published"),
    ("yarn add keyv@npm:keyv@6.0.0",             "is known to be malicious in version 6.0.0", "an alias for itself"),
    ("cargo add faster_log",                     "is a known malicious package",             "named like `fast_log`"),
    ("cargo add arrayref@0.3.10",                "is known to be malicious in version 0.3.10", "a crate with a malicious dependency"),
    ("pip install beautyfulsoup python-mysql",   "`python-mysql` is a known malicious package (PyPI, 2018-05-11,", "a name of two words"),
    ("npm i @solana/web3.js@1.95.7",             "`@solana/web3.js` is known to be malicious", "in a scope"),
    ("yarn add expresss",                        "differs by one repeated letter from `express`", "yarn"),
    ("pnpm add -D typescirpt",                   "two swapped letters from `typescript`",    "pnpm"),
    ("bun add expresss",                         "differs by one repeated letter",           "bun"),
    ("npx crossenv NODE_ENV=x node a.js",        "is a known malicious package",             "fetched to be run"),
    ("npx -p crossenv tool",                     "is a known malicious package",             "the package of a flag"),
    ("cargo add rustdecimal",                    "is a known malicious package (cargo, 2022-05-10, RUSTSEC-2022-0042)", "cargo"),
    ("cargo install finch_rust",                 "is a known malicious package",             "`-` and `_` are the same"),
    ("gem install rest-client -v 1.6.13",        "is known to be malicious in version 1.6.13", "the version of a flag"),
    ("bundle add railss",                        "differs by one repeated letter from `rails`", "bundler"),
    ("x=crossenv; npm i $x",                     "is a known malicious package",             "the value of a variable"),
    ("echo colourama | xargs pip install",       "is a known malicious package",             "known data"),
    ('pip install "$(printf %s colourama)"',     "is a known malicious package",             "the output of a command"),
    ("pip install -r <(echo colourama)",         "is a known malicious package",             "a list that is known"),
    ("pip install -r /dev/stdin <<< colourama",  "is a known malicious package",             "a list on the standard input"),
    ("npx -w pkg crossenv",                      "is a known malicious package",             "after a flag of npm with a value"),
    ("pnpm add -w crossenv",                     "is a known malicious package",             "after a flag of pnpm without a value"),
    ("yarn up -C crossenv",                      "is a known malicious package",             "after a flag of Yarn without a value"),
    ("pip install --no-index reqests",           "differs by one letter",                    "without network, from a folder"),
]
SILENT = [
    # command, why
    ("pip install requests numpy pandas",        "popular"),
    ("npm i chalk axios@1.14.0 ctx",             "other versions of hijacked packages, and another ecosystem"),
    ("npm i keyv@5.5.0 posthog-js@1 node-ipc@9.2.1 event-stream@4", "other versions of hijacked packages"),
    ("cargo add arrayref@0.3.9 internment",      "other versions of hijacked crates"),
    ("pip install 'ultralytics>=8.3.41'",        "a range that contains good versions"),
    ("pip install pyaml psycopg httpr",          "packages of their own"),
    ("npm i preact colord cli-table3",           "packages of their own"),
    ("pip install nox nose2 toml",               "short"),
    ("pip install -r reqests -c reqests",        "files"),
    ("pip install ./reqests reqests.whl",        "files"),
    ("pip install git+https://h.example/reqests", "a repository"),
    ("npm i crossenv@github:a/b a/crossenv",     "repositories"),
    ("pip uninstall reqests; npm rm crossenv",   "removes it"),
    ("yarn remove crossenv",                     "removes it"),
    ("npm run crossenv",                         "a script of the project"),
    ("uvx ruff reqests",                         "an argument of the program"),
    ("npx eslint crossenv",                      "an argument of the program"),
    ("uv run reqests",                           "a program of the project"),
    ("cargo run rustdecimal",                    "no install"),
    ("cargo install --git https://h.example/r rustdecimal", "from a repository"),
    ('pip install "$x"',                         "known only at run time"),
    ("pip show reqests",                         "reads"),
]
HOSTS = [
    # command, the hosts that it names, why
    ("npm i x@npm:y",                            set(),                 "an alias"),
    ("npm i @s/x@npm:@t/y@1",                    set(),                 "an alias in a scope"),
    ("npm i x@file:../y",                        set(),                 "a folder"),
    ("yarn add x@patch:y",                       set(),                 "a patched package"),
    ("bun add x@github:a/b",                     {"github.com"},        "a repository"),
    ("npm i git@h.example:a/b",                  {"h.example:22"},      "hostile: a repository on another host"),
    ("npm i x@https://h.example/y.tgz",          {"h.example"},         "hostile: an archive"),
    ("scp user@npm:a b",                         {"npm:22"},            "hostile: a host of that name"),
]
DIFFERENCES = [
    ("reqeusts",   "requests",  "two swapped letters", "swapped"),
    ("requezts",   "requests",  "one letter",          "replaced"),
    ("reqests",    "requests",  "one letter",          "missing"),
    ("requestts",  "requests",  "one repeated letter", "repeated"),
    ("crossenv",   "cross-env", "one hyphen",          "without its hyphen"),
    ("cross--env", "cross-env", "one repeated letter", "a hyphen twice"),
    ("chart-js",   "chart.js",  "one hyphen",          "a hyphen for a dot"),
    ("requests",   "requests",  "",                    "the same"),
    ("reqeutss",   "requests",  "",                    "two edits"),
    ("request",    "requestss", "",                    "two letters longer"),
]
# fmt: on


def reported(command: str) -> list[str]:
    return [reason.text for reason in judge(command).reasons if reason.tier is Tier.DANGEROUS]


@pytest.mark.threat("T172")
@pytest.mark.parametrize(("command", "text", "why"), REPORTED, ids=[f"{row[2]}: {row[0]}" for row in REPORTED])
def test_install_is_dangerous(command: str, text: str, why: str) -> None:
    found = reported(command)
    assert any(text in each for each in found), (why, found)


# fmt: off
# A rule of the user, a mode, and whether a popular and a malicious package are installed without a question.
RULED = [
    ('run=["pip", "install", "**"] tier=["network", "execute"] host=["pypi.example.org"]', Mode.DEFAULT,       True,  "every install"),
    ('run=["pip", "install", "**"] tier=["network", "execute"] host=["pypi.example.org"]', Mode.TRUST_PROJECT, True,  "every install, in a looser mode"),
    ('run=["pip", "install", "colourama"] tier=["network", "execute"] host=["pypi.example.org"]', Mode.DEFAULT, False, "exactly the malicious package"),
    ('tool=["bash"] host=["pypi.example.org"]',                                           Mode.TRUST_PROJECT, False, "the host alone"),
]
# fmt: on


@pytest.mark.threat("T172")
@pytest.mark.parametrize(("rule", "mode", "popular", "why"), RULED, ids=[row[3] for row in RULED])
def test_a_rule_of_the_user_does_not_cover_a_malicious_package(rule: str, mode: Mode, popular: bool, why: str) -> None:
    at = evaluation_context(mode, f"allow {rule}")
    if popular:
        assert isinstance(at.evaluate(action("pip install requests"))[1], Allow)
    ask = question("pip install colourama", at)
    assert ask.cell.tier is Tier.DANGEROUS
    assert choices(at, ask) == (), "no answer is remembered"


@pytest.mark.parametrize(("command", "why"), SILENT, ids=[f"{row[1]}: {row[0]}" for row in SILENT])
def test_install_is_not_reported(command: str, why: str) -> None:
    assert not reported(command), why


@pytest.mark.parametrize(("command", "hosts", "why"), HOSTS, ids=[row[2] for row in HOSTS])
def test_hosts_of_package_names(command: str, hosts: set[str], why: str) -> None:
    """The kind of source after the name of a package is not taken for a host, unless it is one."""
    named = {each.text.removeprefix("connects to ") for each in judge(command).reasons if "connects to " in each.text}
    assert named == hosts, why


def test_folder_of_a_package_name_is_a_path() -> None:
    assert any(reason.tier is Tier.SECRET for reason in judge("npm i x@file:/etc/shadow").reasons)


@pytest.mark.parametrize(("name", "other", "words", "why"), DIFFERENCES, ids=[row[3] for row in DIFFERENCES])
def test_difference(name: str, other: str, words: str, why: str) -> None:
    assert difference(name, other) == words, why


def test_table_is_sorted_and_complete() -> None:
    """Each row is in order and has a normalized name, versions, a date and a source; updating changes nothing."""
    rows = rows_of(malicious_packages.TABLE)
    assert table_of(rows) == malicious_packages.TABLE.removeprefix("\n")
    assert f"{BEGIN}{table_of(rows)}{END}" in MODULE.read_text("utf-8")
    assert len(rows) < 4000, "the table is read whenever an install is judged"
    for (ecosystem, name), rest in rows.items():
        assert ecosystem in POPULAR
        assert name == normalized(ecosystem, name)
        assert re.fullmatch(r"(?:\*|[\w.+,-]+) 20[0-9]{2}-[0-9]{2}-[0-9]{2} \S.*", rest), rest


@pytest.mark.parametrize("ecosystem", list(POPULAR))
def test_no_known_name_is_malicious(ecosystem: str) -> None:
    """No popular package and none of its neighbours is reported as a whole, and all names are normalized."""
    for name in (*POPULAR[ecosystem].split(), *NEIGHBOURS[ecosystem].split()):
        assert name == normalized(ecosystem, name)
        entry = malicious_packages.known_malicious(ecosystem, name)
        assert entry is None or entry.versions, name


def record(identifier: str, ecosystem: str, name: str, **affected: object) -> dict[str, object]:
    package = {"ecosystem": ecosystem, "name": name}
    published = "2031-02-03T04:05:06Z"
    return {"id": identifier, "published": published, "affected": [{"package": package, **affected}]}


OPEN = [{"type": "SEMVER", "events": [{"introduced": "0"}]}]
RECORDS = [
    record("MAL-2031-1", "npm", "Some-Evil", ranges=OPEN),
    record("MAL-2031-2", "PyPI", "Hijacked_One", versions=["1.2", "1.1"]),
    record("MAL-2031-3", "npm", "old", versions=["3.0.0"]),
    record("GHSA-aaaa", "npm", "only-vulnerable", ranges=OPEN),
    record("GHSA-bbbb", "crates", "a-crate", ranges=OPEN) | {"database_specific": {"cwe_ids": ["CWE-506"]}},
    record("MAL-2031-4", "npm", "false-alarm", ranges=OPEN) | {"withdrawn": "2031-03-01T00:00:00Z"},
    record("MAL-2031-5", "npm", "fixed", ranges=[{"events": [{"introduced": "1.5.0"}, {"fixed": "1.5.1"}]}]),
    record("MAL-2031-6", "npm", 'x"""; evil', ranges=OPEN),
    record("MAL-2031-7", "Go", "example.com/x", ranges=OPEN),
]


RUST = """```toml
[advisory]
id = "RUSTSEC-2031-0001"
package = "Evil-Crate"
date = "2031-04-05"
categories = [%s]
[versions]
patched = []%s
```
# a title
"""


def write_records(folder: Path) -> None:
    for number, each in enumerate(RECORDS):
        below = folder / f"{number % 2}"
        below.mkdir(exist_ok=True)
        (below / f"{number}.json").write_text(json.dumps(each))


def test_records_are_merged(tmp_path: Path) -> None:
    write_records(tmp_path)
    old = {("npm", "old"): "2.0.0 2019-01-01 CVE-2019-1"}
    assert table_of(merged(old, records(tmp_path))).splitlines() == [
        "cargo a_crate * 2031-02-03 GHSA-bbbb",
        "npm old 2.0.0,3.0.0 2019-01-01 CVE-2019-1",
        "npm some-evil * 2031-02-03 MAL-2031-1",
        "pypi hijacked-one 1.1,1.2 2031-02-03 MAL-2031-2",
    ]


RUST_ADVISORIES = [
    (RUST % ('"malicious"', ""), ["cargo evil_crate * 2031-04-05 RUSTSEC-2031-0001"], "malicious in every version"),
    (RUST % ('"malicious"', '\nunaffected = ["<= 0.3.9"]'), [], "has good versions, which the advisory does not list"),
    (RUST % ('"memory-corruption"', ""), [], "only vulnerable"),
    ("# no advisory", [], "another file"),
]


@pytest.mark.parametrize(("text", "rows", "why"), RUST_ADVISORIES, ids=[row[2] for row in RUST_ADVISORIES])
def test_rust_advisories_are_merged(text: str, rows: list[str], why: str, tmp_path: Path) -> None:
    (tmp_path / "RUSTSEC-2031-0001.md").write_text(text)
    assert table_of(merged({}, records(tmp_path))).splitlines() == rows, why


LIST = """# a comment

chalk:5.6.1
@a/b:1.0.1
@a/b:1.0.2
pypi:Some_Thing:2.0
go:example.com/x:v1.0.0
c,"3.0.1, 3.0.2","one source, another"
d,= 4.0.0 || = 4.0.1
unlisted:1.0.0
"""


def test_lists_are_merged(tmp_path: Path) -> None:
    """A list adds versions only, keeps date and source of a row, and adds no package that `only` leaves out."""
    old = {("npm", "chalk"): "5.6.0 2025-09-08 issue 1"}
    only = {"@a/b", "some_thing", "c", "d"}
    assert table_of(merged(old, listed(LIST, "a list", "2031-01-02"), only)).splitlines() == [
        "npm @a/b 1.0.1,1.0.2 2031-01-02 a list",
        "npm c 3.0.1,3.0.2 2031-01-02 a list",
        "npm chalk 5.6.0,5.6.1 2025-09-08 issue 1",
        "npm d 4.0.0,4.0.1 2031-01-02 a list",
        "pypi some-thing 2.0 2031-01-02 a list",
    ]


def test_package_with_good_versions_is_never_reported_as_a_whole() -> None:
    found = [record("MAL-2031-8", "npm", "react", ranges=OPEN), record("MAL-2031-9", "npm", "hijacked", ranges=OPEN)]
    old = {("npm", "hijacked"): "1.0.1 2031-01-01 CVE-2031-1"}
    assert merged(old, found) == old


def test_list_needs_a_source_and_a_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list").write_text(LIST)
    with pytest.raises(SystemExit):
        make_malicious_packages.main([str(tmp_path / "list"), "--source", "a list"])
    assert "needs --source and --date" in capsys.readouterr().err


def test_update_of_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--check` changes nothing; the update writes valid Python that contains the new row."""
    module = tmp_path / "module.py"
    module.write_text(MODULE.read_text("utf-8"))
    monkeypatch.setattr(make_malicious_packages, "MODULE", module)
    folder = tmp_path / "records"
    folder.mkdir()
    write_records(folder)
    assert make_malicious_packages.main([str(folder), "--check"]) == 0
    assert "new: npm some-evil * 2031-02-03 MAL-2031-1" in capsys.readouterr().out
    assert module.read_text() == MODULE.read_text()
    assert make_malicious_packages.main([str(folder)]) == 0
    names: dict[str, object] = {"__name__": "module"}
    exec(compile(module.read_text(), "module", "exec"), names)
    assert "\nnpm some-evil * 2031-02-03 MAL-2031-1\n" in str(names["TABLE"])


TABLES = ("policy.handlers.malicious_packages", "policy.handlers.package_tables")


@pytest.mark.parametrize(
    ("command", "loads"),
    [("npm test", False), ("cargo build --release", False), ("npm ci", False), ("npm i left-pad", True)],
)
def test_tables_are_loaded_for_an_install_only(command: str, loads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*TABLES, "policy.handlers.package_spelling"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    judge(command)
    assert [name in sys.modules for name in TABLES] == [loads, loads]
