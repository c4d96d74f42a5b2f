"""Tests of hosts that a command connects to without naming them: remotes of a repository, registries of a tool."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from policy.classify import classify
from policy.decide import decide
from policy.evaluation import EvaluationContext
from policy.grants.extra_right import ExtraRight, ask_for
from policy.grants.offers import choices, draft_grant
from policy.grants.resolve import resolve
from policy.model.action import RunScript
from policy.model.assessment import EffectKind, Scope
from policy.model.facts import Facts, Remotes
from policy.model.tier import Mode, Ruling
from policy.model.verdict import Allow, Ask, Deny
from runner.facts.gather import gather
from runner.facts.git.remotes import remotes
from runner.facts.package_registries import registries, registry_variables
from tests.support.permission_machine import BOOK, PROFILE, rules

CONFIG = """
[core]
\tbare = false
[remote "origin"] url = https://code.example.org/a/b.git ; a comment
\tfetch = +refs/heads/*:refs/remotes/origin/*
[remote "mirror"]
\turl = "git@mirror.example.net:a/b.git"
\tpushurl = ssh://git@push.example.net:2222/a/b.git
[remote "near"]
\turl = ../near.git
[remote "short"]
\turl = gh:a/b
[remotes]
\tboth = origin mirror
[branch "main"]
\tremote = mirror
[url "https://forge.example.com/"]
\tinsteadOf = gh:
[url "ssh://git@forge.example.com/"]
\tpushInsteadOf = gh:
[url "https://longer.example.com/"]
\tinsteadOf = gh:a/
"""
MODULES = """
[submodule "one"]
\tpath = one
\turl = ../one.git
[submodule "two"]
\tpath = two
\turl = https://modules.example.org/two.git
"""


def git(*words: str, cwd: Path) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *words], cwd=cwd, env=environ, check=True, capture_output=True, text=True).stdout


# The default registries of the tools that these tests install.
NPM, INDEX, FILES, PROXY, SUMS = (
    "npm.example.org", "index.example.org", "files.example.org", "proxy.example.org", "sums.example.org",
)  # fmt: skip
DEFINITIONS = """
  define('userconfig', { default: '~/.npmrc' })
  registry: new Definition('registry', {
    default: 'https://npm.example.org/',
"""
MODELS = f"""
PyPI = PackageIndex("https://{INDEX}/", file_storage_domain="{FILES}")
TestPyPI = PackageIndex(
    "https://test.example.org/", file_storage_domain="test-files.example.org"
)
"""


def install_tools(prefix: Path) -> None:
    """Lay out npm, pip and Go below `prefix` as their packages do, with default registries of their own."""
    npm, pip, go = prefix / "lib/node_modules/npm", prefix / "lib/python3.11/site-packages/pip", prefix / "go"
    files = {
        npm / "bin/npm-cli.js": "",
        npm / "node_modules/@npmcli/config/lib/definitions/definitions.js": DEFINITIONS,
        prefix / "bin/pip": "",
        pip / "_internal/models/index.py": MODELS,
        go / "bin/go": "",
        go / "go.env": f"# defaults\nGOPROXY=https://{PROXY},direct\nGOSUMDB={SUMS}\nGOTOOLCHAIN=auto\n",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, program in (("npm", npm / "bin/npm-cli.js"), ("go", go / "bin/go")):
        (prefix / "bin" / name).symlink_to(program)
    for program in (npm / "bin/npm-cli.js", prefix / "bin/pip", go / "bin/go"):
        program.chmod(0o755)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    install_tools(tmp_path / "opt")
    found = tmp_path / "work"
    (found / "sub").mkdir(parents=True)
    git("init", "-q", "-b", "main", cwd=found)
    (found / ".git" / "config").write_text(CONFIG)
    return found


def facts_of(work: Path, environ: dict[str, str] | None = None) -> Facts:
    return gather(
        str(work),
        {"PATH": f"{work.parent}/opt/bin:/usr/bin:/bin", "HOME": str(work.parent / "home"), **(environ or {})},
        PROFILE,
    )


def hosts_of(script: str, facts: Facts) -> list[tuple[str, Scope]]:
    found = classify(RunScript(script, facts.workspace), facts, BOOK, PROFILE)
    return sorted((one.target, one.scope) for one in found.effects if one.kind is EffectKind.CONNECTS)


@pytest.mark.parametrize("name", ["origin", "mirror", "near", "short"])
def test_git_itself_uses_these_addresses(name: str, work: Path) -> None:
    found = remotes(str(work / "sub"), "/nonexistent")
    assert list(found.addresses([name])) == git("remote", "get-url", "--all", name, cwd=work).split()
    assert (
        list(found.addresses([name], push=True)) == git("remote", "get-url", "--push", "--all", name, cwd=work).split()
    )


CODE, MIRROR, PUSH = "code.example.org", "mirror.example.net:22", "push.example.net:2222"
LONGER = "longer.example.com"
# fmt: off
TALKS = [
    ("git fetch",                          [MIRROR],                 "the remote of the branch that is checked out"),
    ("git fetch origin",                   [CODE],                   "by its name"),
    ("git -C sub fetch origin",            [CODE],                   "from a folder below"),
    ("cd sub && git pull origin main",     [CODE],                   "after cd"),
    ("git push",                           [PUSH],                   "where it pushes to"),
    ("git push origin main",               [CODE],                   "by its name"),
    ("git push short",                     ["forge.example.com:22"], "rewritten for pushing"),
    ("git fetch short",                    [LONGER],                 "the longest beginning counts"),
    ("git fetch both",                     [CODE, MIRROR],           "several together"),
    ("git fetch --multiple origin mirror", [CODE, MIRROR],           "two by their names"),
    ("git fetch --all",                    [CODE, LONGER, MIRROR],   "every one; the one nearby is no host"),
    ("git remote update",                  [CODE, LONGER, MIRROR],   "the same"),
    ("git ls-remote origin",               [CODE],                   "a question to it"),
    ("git remote show origin",             [CODE],                   "another"),
    ("git fetch -j 2 origin",              [CODE],                   "after a flag with a value"),
    ("git fetch near",                     [],                       "a folder of this machine"),
    ("git clone gh:x/y",                   ["forge.example.com"],    "an address written in short"),
]
# fmt: on


@pytest.mark.threat("T68")
@pytest.mark.parametrize(("script", "hosts", "why"), TALKS, ids=[row[0] for row in TALKS])
def test_the_hosts_of_remotes_are_named(script: str, hosts: list[str], why: str, work: Path) -> None:
    found = hosts_of(script, facts_of(work))
    wanted = [(host, Scope.WORKSPACE) for host in hosts]
    assert [one for one in found if one[1] is Scope.WORKSPACE] == wanted, why


def test_the_hosts_of_submodules_are_named(work: Path) -> None:
    (work / ".gitmodules").write_text(MODULES)
    found = [host for host, _ in hosts_of("git submodule update --init", facts_of(work))]
    assert found == ["mirror.example.net:22", "modules.example.org"], "a relative address belongs to the remote's host"


def test_settings_that_cannot_be_read_name_nothing(work: Path) -> None:
    for bad in (b"[remote", b"\0\xff", b'[remote "origin"]\nurl', b"x" * (2 << 20)):
        (work / ".git" / "config").write_bytes(bad)
        assert remotes(str(work), "/nonexistent").fetch == {}
        assert hosts_of("git fetch origin", facts_of(work)) == [("", Scope.NONE)]
    assert remotes("/nonexistent/x", "/nonexistent") == Remotes()


# the repository's settings beside a remote `origin`, script, hosts, why
HOSTILE = [
    ('\ufeff[remote "x"]\nurl=https://evil.test/', "git fetch x", ["evil.test"], "a mark at the start of the file"),
    ('[branch "main"]\nremote=https://evil.test/x', "git fetch", ["evil.test"], "an address in place of a name"),
    ("[remote]\npushDefault=evil.test:x", "git push", ["evil.test:22"], "another"),
    ('[remote "x"]\nurl=ext::sh -c x', "git fetch x", [""], "a program, not a host called ext"),
    ('[remote "x"]\nurl=https://code.example.org/\nvcs=ext', "git fetch x", [""], "a program by another key"),
    ('[remote "x"]\nurl=code.example.org', "git fetch x", [], "without a colon it is a path"),
    ('[remote "x"]\nurl=ssh://code.example.org?@evil.test/', "git fetch x", [""], "Git reads the host up to the slash"),
    ("[a]" * 20_000, "git fetch origin", [CODE], "a long line"),
    ("[a]" * 200_000, "git fetch origin", [""], "a line that is too long"),
    ("a" + "[a]" * 200_000, "git fetch origin", [""], "a long line that Git does not understand"),
    ("[a]\n" + "b=1\n" * 10_001, "git fetch origin", [""], "so many settings that some are not read"),
    (
        "".join(f'[url "https://h{n}.test/"]\ninsteadOf=h{n}:\n' for n in range(501)),
        "git fetch origin",
        [""],
        "the same",
    ),
]


@pytest.mark.threat("T68")
@pytest.mark.parametrize(("settings", "script", "hosts", "why"), HOSTILE, ids=[row[-1] for row in HOSTILE])
def test_hostile_settings_name_no_false_host(
    settings: str, script: str, hosts: list[str], why: str, work: Path
) -> None:
    own = f'[remote "origin"]\nurl=https://{CODE}/a\n'
    bom = settings.startswith("\ufeff")
    (work / ".git" / "config").write_text(f"{settings}\n{own}" if bom else f"{own}\n{settings}\n")
    found = [host for host, _ in hosts_of(script, facts_of(work))]
    assert found == hosts, why


RELATIVE = ["../x", "../../x", "../../../x", "../../evil.test/x", "./x", "../x/", "../../../../x", "./../x"]


@pytest.mark.threat("T68")
@pytest.mark.parametrize(
    "base", ["https://code.example.org/a/b.git", "git@code.example.org:a", "ssh://code.example.org/a"]
)
@pytest.mark.parametrize("address", RELATIVE)
def test_a_relative_address_of_a_submodule_leads_where_git_says(address: str, base: str, work: Path) -> None:
    (work / ".git" / "config").write_text(f'[remote "origin"]\nurl={base}\n')
    (work / ".gitmodules").write_text(f'[submodule "m"]\npath=m\nurl={address}\n')
    git("update-index", "--add", "--cacheinfo", "160000,1234567890123456789012345678901234567890,m", cwd=work)
    told = remotes(str(work), "/nonexistent").modules
    try:
        git("submodule", "init", cwd=work)
    except subprocess.CalledProcessError:
        return  # nothing is left that could be taken away, so Git goes nowhere
    assert told == (git("config", "submodule.m.url", cwd=work).strip(),)


@pytest.mark.parametrize("name", [".npmrc", ".git/commondir", ".git/HEAD", ".git/config", ".gitmodules"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "loop"])
def test_something_else_in_place_of_a_file_stops_nobody(name: str, kind: str, work: Path) -> None:
    place = work / name
    place.unlink(missing_ok=True)
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(place.name)
    facts = facts_of(work)
    unknown = name == ".npmrc"  # settings of unknown content may name any registry
    assert hosts_of("npm ci", facts) == [("", Scope.NONE) if unknown else (NPM, Scope.SYSTEM)]
    assert {scope for _, scope in hosts_of("git fetch x", facts)} <= {Scope.NONE}


@pytest.mark.parametrize(
    "text",
    [
        '"registry"=https://evil.test/',
        "a=1\rregistry=https://evil.test/",
        "registry=HTTPS://EVIL.test/",
        "\n" * 300_000,
    ],
)
def test_a_projects_registry_is_found_as_npm_finds_it(text: str, work: Path) -> None:
    (work / ".npmrc").write_text(text)
    assert hosts_of("npm ci", facts_of(work)) == [
        ("evil.test", Scope.WORKSPACE) if "egistry" in text else (NPM, Scope.SYSTEM)
    ]


# rules, script, verdict under trust-project, hosts of its terms, why
LED = [
    ("", "git fetch origin", Ruling.ASK, (CODE,), "the question names the host"),
    ('allow host=["code.example.org"]', "git fetch origin", Ruling.ALLOW, (CODE,), "a host on the allowlist"),
    ('allow run=["git","fetch","**"] tier=["network"]', "git fetch origin", Ruling.ASK, (CODE,), "no host is said"),
    ('allow run=["git","fetch","**"] host=["code.example.org"]', "git fetch origin", Ruling.ALLOW, (CODE,), "it is said"),
    ('allow run=["git","fetch","**"] host=["code.example.org"]', "git fetch mirror", Ruling.ASK, (MIRROR,), "another one"),
    ('allow run=["git","fetch","**"] tier=["network"]', "git fetch https://code.example.org/x", Ruling.ALLOW, (CODE,),
     "here the command says it"),
    ('deny host=["code.example.org"]', "git fetch origin", Ruling.DENY, (), "a denial sees through the name"),
]  # fmt: skip


@pytest.mark.threat("T68")
@pytest.mark.parametrize(
    ("given", "script", "expected", "hosts", "why"), LED, ids=[f"{row[0]}-{row[1]}" for row in LED]
)
def test_what_the_repository_names_is_only_asked_about(
    given: str, script: str, expected: Ruling, hosts: tuple[str, ...], why: str, work: Path
) -> None:
    by = replace(PROFILE, permissions=rules(given) if given else ())
    facts = facts_of(work)
    found = classify(RunScript(script, facts.workspace), facts, BOOK, by)
    verdict = decide(found, facts, by, Mode.TRUST_PROJECT, unattended=False, environment=())
    assert {Allow: Ruling.ALLOW, Ask: Ruling.ASK, Deny: Ruling.DENY}[type(verdict)] is expected, (why, verdict)
    if isinstance(verdict, Ask):
        assert verdict.terms.hosts == hosts, why
        assert all(host in verdict.question for host in hosts)
        assert ("which the repository's settings name" in verdict.question) is ("https://" not in script)
    if isinstance(verdict, Allow):
        assert verdict.permit.terms.hosts == hosts, why


OWN = "own.example.org"
# tool, a person's file or variable, its text, a project's file, its text, expected hosts, why
# fmt: off
ASKED = [
    ("npm", ".npmrc", "//x/:_authToken=t\nregistry=https://own.example.org/npm/\n", "", "", {OWN: Scope.OUTSIDE}, "a person's"),
    ("npm", "", "", ".npmrc", "registry = https://evil.example.net\n", {"evil.example.net": Scope.WORKSPACE}, "a project's"),
    ("npm", ".npmrc", "registry=https://own.example.org/", ".npmrc", "@a:registry=https://evil.example.net:8443/x",
     {OWN: Scope.OUTSIDE, "evil.example.net:8443": Scope.WORKSPACE}, "both, each with whose it is"),
    ("npm", "npm_config_registry", "https://own.example.org", "", "", {OWN: Scope.OUTSIDE}, "by a variable"),
    ("npm", "", "", "", "", {NPM: Scope.SYSTEM}, "nothing names one: the tool's own"),
    ("pip", "", "", "", "", {INDEX: Scope.SYSTEM, FILES: Scope.SYSTEM}, "the index, and where its files are"),
    ("pnpm", "", "", "package-lock.json", "x" * (2 << 20), {}, "a lock file that is too long to read"),
    ("conda", "", "", "", "", {}, "a tool that is not known"),
    ("pip", ".config/pip/pip.conf", "[global]\nindex-url = https://u:p@own.example.org/simple\nextra-index-url = https://b.example.org\n", "", "",
     {OWN: Scope.OUTSIDE, "b.example.org": Scope.OUTSIDE}, "a login is not the host"),
    ("pip", "PIP_INDEX_URL", "https://own.example.org/simple", "", "", {OWN: Scope.OUTSIDE}, "by a variable"),
    ("uv", "", "", "pyproject.toml", "[[tool.uv.index]]\nurl = \"https://evil.example.net/simple\"\n",
     {"evil.example.net": Scope.WORKSPACE}, "a project's"),
    ("cargo", ".cargo/config.toml", "[registries.own]\nindex = \"sparse+https://own.example.org/index/\"\n", "", "", {OWN: Scope.OUTSIDE}, "sparse"),
    ("cargo", "", "", ".cargo/config.toml", "[source.x]\nregistry = \"https://evil.example.net/i\"", {"evil.example.net": Scope.WORKSPACE}, "a project's"),
    ("go", "GOPROXY", "https://own.example.org|direct", "", "", {OWN: Scope.OUTSIDE}, "the first of a list"),
    ("go", ".config/go/env", "GOPROXY=https://own.example.org,direct\n", "", "", {OWN: Scope.OUTSIDE}, "in its file"),
    ("gem", ".gemrc", ":sources:\n- https://own.example.org/\n", "", "", {OWN: Scope.OUTSIDE}, "a person's"),
    ("bundle", "", "", "Gemfile", "source 'https://evil.example.net'\n", {"evil.example.net": Scope.WORKSPACE}, "a project's"),
    ("npm", "", "", "package-lock.json", '{"packages": {"node_modules/a": {"resolved": "https://evil.example.net/a.tgz"}}}',
     {"evil.example.net": Scope.WORKSPACE}, "what was locked says where from"),
    ("npm", ".npmrc", "registry=https://own.example.org/", "package-lock.json", '"resolved": "https://evil.example.net/a.tgz"',
     {OWN: Scope.OUTSIDE}, "settings go before what was locked"),
    ("npm", "", "", "package-lock.json", "\n".join(f'"resolved": "https://h{n}.example.net/a.tgz"' for n in range(9)), {},
     "of too many hosts, none: the proxy tells whom it asks for"),
    ("uv", "", "", "uv.lock", 'source = { registry = "https://a.example.net/simple" }\nsdist = { url = "https://b.example.net/x" }\n',
     {"a.example.net": Scope.WORKSPACE, "b.example.net": Scope.WORKSPACE}, "the index, and where its files lie"),
    ("yarn", "", "", "yarn.lock", 'a@1:\n  resolved "https://evil.example.net/a.tgz#1"\n', {"evil.example.net": Scope.WORKSPACE}, "of Yarn"),
    ("bundle", "", "", "Gemfile.lock", "GEM\n  remote: https://evil.example.net/\n", {"evil.example.net": Scope.WORKSPACE}, "of Bundler"),
    ("yarn", "", "", ".yarnrc.yml", "npmRegistryServer: \"https://evil.example.net\"\n", {"evil.example.net": Scope.WORKSPACE}, "a project's"),
]
# fmt: on


@pytest.mark.threat("T68")
@pytest.mark.parametrize(("tool", "own", "text", "file", "content", "hosts", "why"), ASKED)
def test_registries_are_named_with_whose_they_are(
    tool: str, own: str, text: str, file: str, content: str, hosts: dict[str, Scope], why: str, work: Path
) -> None:
    home, environ = work.parent / "home", {}
    if own.startswith("."):
        (home / own).parent.mkdir(parents=True, exist_ok=True)
        (home / own).write_text(text)
    elif own:
        environ[own] = text
    if file:
        (work / file).parent.mkdir(exist_ok=True)
        (work / file).write_text(content)
    environ.setdefault("PATH", f"{work.parent}/opt/bin")
    found = registries(tool, str(work / "sub"), str(home), environ, str(work))
    assert dict(found) == hosts, why


# fmt: off
USUAL = [
    ("npm install left-pad",                         [NPM],                       "npm"),
    ("npm ci",                                       [NPM],                       "npm, everything"),
    ("npx cowsay",                                   [NPM],                       "a program of a package"),
    ("yarn add x",                                   [""],                                         "Yarn has another, which is not read"),
    ("pip install x",                                [FILES, INDEX],"the index, and where its files are"),
    ("python3 -m pip install x",                     [FILES, INDEX],"as a module"),
    ("uv pip install x",                             [FILES, INDEX],"uv"),
    ("cargo add serde",                              [""],                                         "the default is inside the program"),
    ("go get example.org/x",                         [PROXY, SUMS],                                "Go"),
    ("npm install --registry https://x.example.org", ["x.example.org"],                            "the command names one"),
    ("pip install -i https://x.example.org/s y",     ["x.example.org"],                            "the command names one"),
    ("pip install git+https://x.example.org/a/b",    ["x.example.org"],                            "an address in place of a package"),
    ("uv python install 3.13",                       [""],                                         "an interpreter is in no registry"),
]
# fmt: on


@pytest.mark.threat("T68")
@pytest.mark.parametrize(("script", "hosts", "why"), USUAL, ids=[row[0] for row in USUAL])
def test_the_usual_registry_is_named_where_nothing_else_is(script: str, hosts: list[str], why: str, work: Path) -> None:
    assert [host for host, _ in hosts_of(script, facts_of(work))] == hosts, why


# path of a tool below the workspace's parent, what it becomes, expected hosts of `npm ci` and `pip install x`, why
INSTALLED = [
    ("", "", [NPM], [FILES, INDEX], "as packaged"),
    ("opt/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js", "nothing", [""], [FILES, INDEX], "another version"),
    ("opt/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js",
     "define('registry', {\n default: `https://old.example.org/`,", ["old.example.org"], [FILES, INDEX], "an older spelling"),
    ("opt/lib/python3.11/site-packages/pip/_internal/models/index.py", "x" * (2 << 20), [NPM], [""], "a file that is too long"),
    ("opt/lib/python3.11/site-packages/pip/_internal/models/index.py", "PackageIndex('file:///x', file_storage_domain='y')",
     [NPM], [""], "no address of a host"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "text", "npm", "pip", "why"), INSTALLED, ids=[row[-1] for row in INSTALLED])
def test_the_default_is_the_one_of_the_installed_tool(
    file: str, text: str, npm: list[str], pip: list[str], why: str, work: Path
) -> None:
    if file:
        (work.parent / file).write_text(text)
    facts = facts_of(work, {"PATH": f"{work.parent}/opt/bin"})
    found = [[host for host, _ in hosts_of(script, facts)] for script in ("npm ci", "pip install x")]
    assert found == [npm, pip], why


@pytest.mark.threat("T68")
def test_a_tool_in_the_workspace_counts_as_settings_of_the_project(work: Path) -> None:
    install_tools(work / ".venv")
    facts = facts_of(work, {"PATH": f"{work}/.venv/bin:/usr/bin:/bin"})
    assert hosts_of("pip install x", facts) == [(FILES, Scope.WORKSPACE), (INDEX, Scope.WORKSPACE)]


def test_the_default_is_the_one_that_npm_itself_reports(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    assert npm is not None, "run `make test`, which installs npm"
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "npm_config_globalconfig": "/nonexistent"}
    reported = subprocess.run(
        [npm, "config", "get", "registry"], cwd=tmp_path, env=environ, check=True, capture_output=True, text=True
    )
    (host,) = [host for host, _ in registries("npm", str(tmp_path), str(tmp_path), environ, str(tmp_path))]
    assert host == urlsplit(reported.stdout.strip()).hostname


def test_the_default_is_the_one_of_pip_itself(tmp_path: Path) -> None:
    code = "from pip._internal.models.index import PyPI; print(PyPI.netloc, PyPI.file_storage_domain)"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    environ = {"PATH": str(Path(sys.executable).parent), "HOME": str(tmp_path)}
    found = registries("pip", str(tmp_path), str(tmp_path), environ, str(tmp_path))
    assert [host for host, _ in found if host in told] == told


# rules, script, verdict under trust-project, hosts of its terms, why
NOTHING_NAMED = [
    ("", Ruling.ASK, (NPM,), "one approval is enough"),
    ('allow host=["npm.example.org"]', Ruling.ALLOW, (NPM,), "a host on the allowlist"),
    ('allow run=["npm","ci"] tier=["network","execute"] host=["m.example.org"]', Ruling.ALLOW, ("m.example.org",),
     "a rule about the command says where it goes, and nothing else is open"),
    ('allow run=["npm","ci"] tier=["network","execute"]', Ruling.ALLOW, (NPM,), "a rule without a host"),
    ('allow host=["m.example.org"]', Ruling.ASK, (NPM,), "another host"),
    ('deny host=["npm.example.org"]', Ruling.DENY, (), "a denial of what the tool contacts"),
    ('deny host=["m.example.org"]', Ruling.ASK, (NPM,), "a denial of what is not open"),
]  # fmt: skip


@pytest.mark.threat("T68")
@pytest.mark.parametrize(("given", "expected", "hosts", "why"), NOTHING_NAMED, ids=[row[-1] for row in NOTHING_NAMED])
def test_rules_about_a_usual_registry(
    given: str, expected: Ruling, hosts: tuple[str, ...], why: str, work: Path
) -> None:
    by = replace(PROFILE, permissions=rules(given) if given else ())
    facts = facts_of(work)
    found = classify(RunScript("npm ci", facts.workspace), facts, BOOK, by)
    verdict = decide(found, facts, by, Mode.TRUST_PROJECT, unattended=False, environment=())
    assert {Allow: Ruling.ALLOW, Ask: Ruling.ASK, Deny: Ruling.DENY}[type(verdict)] is expected, (why, verdict)
    if isinstance(verdict, Ask | Allow):
        terms = verdict.terms if isinstance(verdict, Ask) else verdict.permit.terms
        assert terms.hosts == hosts, why


# script, file, content, hosts of the grant, then: file, content, why the grant is not enough afterwards
# fmt: off
REMEMBERED = [
    ("npm install left-pad", "", "", (NPM,), ".npmrc", "registry=https://evil.example.net/",
     "the project names another registry"),
    ("npm install left-pad", ".npmrc", "registry=https://m.example.org/", ("m.example.org",), ".npmrc", "",
     "the project names no registry any more"),
    ("npm install left-pad", ".npmrc", "registry=https://m.example.org/", ("m.example.org",), ".npmrc", "x" * (2 << 20),
     "settings of unknown content"),
    ("pip install x", "", "", (INDEX, FILES), "", "", ""),
    ("git push", "", "", ("push.example.net:2222",), ".git/config", '[remote "origin"]\nurl=https://evil.example.net/x',
     "another remote"),
    ("git fetch origin", "", "", (CODE,), ".git/config", '[remote "origin"]\nurl=https://evil.example.net/x', "another remote"),
]
# fmt: on


@pytest.mark.threat("T68")
@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.TRUST_PROJECT])
@pytest.mark.parametrize(
    ("script", "file", "content", "hosts", "then", "other", "why"),
    REMEMBERED,
    ids=[f"{r[0]}-{r[-1]}" for r in REMEMBERED],
)
def test_exactly_this_command_with_exactly_these_hosts_can_be_remembered(
    script: str,
    file: str,
    content: str,
    hosts: tuple[str, ...],
    then: str,
    other: str,
    why: str,
    mode: Mode,
    work: Path,
) -> None:
    if file:
        (work / file).write_text(content)

    def context() -> EvaluationContext:
        return EvaluationContext(facts_of(work), BOOK, PROFILE, mode, ())

    at, action = context(), RunScript(script, str(work))
    _, ask = at.evaluate(action)
    assert isinstance(ask, Ask)
    (choice,) = choices(at, ask)
    assert [(what.shape.words, what.host) for what in choice.whats] == [(tuple(script.split()), hosts)]
    grants = [draft_grant(what, "g1") for what in choice.whats]
    allowed = resolve(at, ask.assessment, ask, grants).verdict
    assert isinstance(allowed, Allow)
    assert sorted(allowed.permit.terms.hosts) == sorted(hosts)
    for more in (f"{script} && curl https://evil.example.net", f"{script} --force", f"{script}; rm -rf .git"):
        found, verdict = at.evaluate(RunScript(more, str(work)))
        assert not isinstance(resolve(at, found, verdict, grants).verdict, Allow), more
    if then:
        (work / then).write_text(other)
        now = context()
        found, verdict = now.evaluate(action)
        assert not isinstance(resolve(now, found, verdict, grants).verdict, Allow), why


@pytest.mark.parametrize("script", ["git push --force", "npm publish", "sudo npm install x", "pip install $x"])
def test_a_dangerous_or_uncertain_command_is_not_remembered(script: str, work: Path) -> None:
    at = EvaluationContext(facts_of(work), BOOK, PROFILE, Mode.DEFAULT, ())
    _, ask = at.evaluate(RunScript(script, str(work)))
    assert isinstance(ask, Ask)
    assert choices(at, ask) == ()


@pytest.mark.threat("T109")
def test_one_more_host_is_added_to_the_usual_ones(work: Path) -> None:
    """A package may lie elsewhere than its registry. The one further question keeps what was open."""
    at = EvaluationContext(facts_of(work), BOOK, PROFILE, Mode.TRUST_PROJECT, ())
    action = RunScript("pip install x", str(work))
    _, ask = at.evaluate(action)
    assert isinstance(ask, Ask)
    more = ask_for(at, action, ask.terms, ExtraRight("--host", "github.com"))
    assert more is not None
    assert more.terms.hosts == (FILES, "github.com", INDEX)
    assert more.question.endswith("with the additional right to connect to github.com. Allow it?")


def test_a_tool_is_told_the_registry_of_the_person_and_no_login(work: Path) -> None:
    home = work.parent / "home"

    def ask(hosts: tuple[str, ...], address: str = "https://own.example.org/simple") -> tuple[tuple[str, str], ...]:
        return registry_variables(hosts, str(home), {"PIP_INDEX_URL": address} if address else {}, str(work))

    assert ask((OWN,)) == (("PIP_INDEX_URL", "https://own.example.org/simple"),)
    assert ask(("other.example.org", "own.example.org:8443")) == ()
    assert ask(("*.example.org:443 private",)) == (("PIP_INDEX_URL", "https://own.example.org/simple"),)
    assert ask((OWN,), "https://u:s3cret@own.example.org/simple") == ()
    (home / ".npmrc").write_text("registry=https://own.example.org/\n")
    assert ask((OWN,), "") == (("npm_config_registry", "https://own.example.org/"),)
    (work / ".npmrc").write_text("registry=https://evil.example.net/\n")
    assert ask((OWN,), "") == (), "the project's would count, and is asked about"


@pytest.mark.threat("T68")
def test_a_projects_registry_does_not_run_by_an_allow_of_another(work: Path) -> None:
    home = work.parent / "home"
    (home / ".npmrc").write_text("registry=https://own.example.org/\n")
    by = replace(PROFILE, permissions=rules('allow host=["own.example.org"]'))
    for content, expected, hosts in (
        ("", Allow, (OWN,)),
        ("registry=https://evil.example.net\n", Ask, ("evil.example.net", OWN)),
    ):
        (work / ".npmrc").write_text(content)
        facts = facts_of(work)
        found = classify(RunScript("npm ci", facts.workspace), facts, BOOK, by)
        verdict = decide(found, facts, by, Mode.TRUST_PROJECT, unattended=False, environment=())
        assert isinstance(verdict, expected), content
        terms = verdict.terms if isinstance(verdict, Ask) else verdict.permit.terms
        assert terms.hosts == hosts
        assert (("npm_config_registry", "https://own.example.org/") in terms.env) is (content == "")


def test_nothing_is_read_before_such_a_command_is_judged() -> None:
    """Law of the start: a command that connects to nobody loads neither reader."""
    script = (
        "import sys, os; from runner.gate.gate import GateArgs, open_gate\n"
        "gate, action = open_gate(GateArgs('ls', None), os.environ); gate.evaluate(action, unattended=True)\n"
        "print([name for name in ('runner.facts.git.remotes', 'runner.facts.package_registries', 'policy.model.host_rule') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout.replace("'", '"')) == []
