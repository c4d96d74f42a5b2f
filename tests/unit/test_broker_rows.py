"""Tests of `[[credential]]`: allowed contents, the effect on the terms of a command, and the variables of programs."""

from pathlib import Path
from typing import Any

import pytest

from policy.model.credential import Credential, add_credential_settings, asked_openly, select_credentials
from policy.toml.schema import TomlError
from runner.config import load
from runner.secrets.broker.session import with_bundle
from tests.support.credential_rows import forge, rows

GOOD = """[[credential]]
name = "forge"
hosts = ["git.example.com/team/"]
header = "Authorization: Bearer {secret}"
env = "FORGE_TOKEN"
"""

# fmt: off
WRONG = [
    ('name = "forge"',                  'name = "a b"',                              "name",      "a name that cannot be typed"),
    ('name = "forge"\n',                "",                                          "[[",        "no name"),
    ('hosts = ["git.example.com/team/"]\n', "",                                      "[[",        "no hosts"),
    ("git.example.com/team/",           "https://git.example.com",                   "hosts",     "a scheme"),
    ("git.example.com/team/",           "git.example.com/team/../other",             "hosts",     "a path that is read in two ways"),
    ("git.example.com/team/",           "git.example.com:*",                         "hosts",     "every port"),
    ("git.example.com/team/",           "git.example.com:80",                        "hosts",     "the port of plain HTTP"),
    ("git.example.com/team/",           "*",                                         "hosts",     "everybody"),
    ("git.example.com/team/",           "TRACE git.example.com",                     "hosts",     "a method that sends it back"),
    ('header = "Authorization: Bearer {secret}"\n', "",                              "[[",        "no way to spell it"),
    ("Bearer {secret}",                 "Bearer abc",                                "header",    "the secret itself, or none"),
    ("Bearer {secret}",                 "{secret} {secret}",                         "header",    "twice"),
    ("Bearer {secret}",                 "Bearer {secret}\\r\\nX: y",                 "header",    "a second header"),
    ("Authorization: ",                 "Host: ",                                    "header",    "what the proxy says itself"),
    ("Authorization: ",                 "Transfer_Encoding: ",                       "header",    "likewise, as CGI reads it"),
    ("Authorization: ",                 "Authorization ",                            "header",    "no header"),
    ('header = "Authorization: Bearer {secret}"', 'basic = "a:b"',                   "basic",     "a user name that RFC 7617 forbids"),
    ('env = "FORGE_TOKEN"',             "",                                          "[[",        "no place"),
    ('env = "FORGE_TOKEN"',             'env = "FORGE_TOKEN"\nkeyring = "forge"',    "keyring",   "two places"),
    ('env = "FORGE_TOKEN"',             'env = "A=B"',                               "env",       "no variable"),
    ('env = "FORGE_TOKEN"',             'env = "A"\nplain = true\nintercept = true', "intercept", "TLS where there is none"),
    ('env = "FORGE_TOKEN"',             'env = "A"\nuse = ["svn"]',                  "use",       "a program that nobody knows how to tell"),
    ('env = "FORGE_TOKEN"',             'env = "A"\nuse = ["pip"]',                  "use",       "no address"),
    ('env = "FORGE_TOKEN"',             'env = "A"\nuse = ["gh"]',                   "use",       "gh without opened TLS"),
    ('env = "FORGE_TOKEN"',             'env = "A"\nuse = ["pip=https://other.org/"]', "use",     "another host"),
    ('env = "FORGE_TOKEN"',             'env = "A"\nuse = ["pip=http://git.example.com/"]', "use", "in the clear"),
    ('env = "FORGE_TOKEN"',             'env = "A"\nuse = ["pip=https://me:x@git.example.com/"]', "use", "a login in a file"),
    ('env = "FORGE_TOKEN"',             'env = "A"\nuse = ["PATH=https://git.example.com/"]', "use", "a variable that the shell obeys"),
    ('env = "FORGE_TOKEN"',             'env = "A"\nuse = ["HTTPS_PROXY=https://git.example.com/"]', "use", "the way out itself"),
    ('env = "FORGE_TOKEN"',             'env = "A"\ntoken = "abc"',                  "token",     "a secret in a file"),
]
# fmt: on


@pytest.mark.parametrize(("old", "new", "key", "why"), WRONG, ids=[row[3] for row in WRONG])
def test_what_cannot_be_used_is_an_error_with_its_line(old: str, new: str, key: str, why: str) -> None:
    assert old in GOOD
    with pytest.raises(TomlError) as error:
        rows(GOOD.replace(old, new))
    assert error.value.problem.what.startswith("test.toml:"), why
    assert key in error.value.problem.what, why
    assert error.value.problem.fix


def test_a_later_row_takes_the_place_of_one_with_its_name() -> None:
    (made,) = rows(GOOD + GOOD.replace("FORGE_TOKEN", "OTHER"))
    assert made.source == ("env", "OTHER")


# fmt: off
REACHED = [
    ("git.example.com/team/",          (),                                  False, "no host"),
    ("git.example.com/team/",          ("git.example.com",),                True,  "the host"),
    ("git.example.com/team/",          ("git.example.com:443",),            True,  "the port of TLS"),
    ("git.example.com/team/",          ("git.example.com:*",),              True,  "every port"),
    ("git.example.com/team/",          ("git.example.com:80",),             False, "plain HTTP only"),
    ("git.example.com/team/",          ("git.example.com:22",),             False, "SSH"),
    ("git.example.com:8443",           ("git.example.com",),                False, "another port"),
    ("git.example.com:8443",           ("git.example.com:8443 private",),   True,  "the same, in a private network"),
    ("git.example.com/team/",          ("*.example.com",),                  True,  "one of many"),
    ("*.example.com",                  ("git.example.com",),                True,  "the other way round"),
    ("*.example.com",                  ("*.git.example.com",),              True,  "both with stars"),
    ("*.example.com",                  ("example.com",),                    False, "below is not the same"),
    ("git.example.com/team/",          ("notgit.example.com",),             False, "ends alike"),
    ("example.com",                    ("git.example.com",),                False, "above is not the same"),
    ("GET git.example.com/team/",      ("GET,HEAD git.example.com",),       True,  "a method in common"),
    ("GET git.example.com/team/",      ("POST git.example.com",),           False, "none in common"),
    ("git.example.com/team/",          ("git.example.com/team/x",),         True,  "a narrower path"),
    ("git.example.com/team/",          ("git.example.com/other",),          False, "another path"),
]
# fmt: on


@pytest.mark.threat("T85")
@pytest.mark.parametrize(("rule", "hosts", "reached", "why"), REACHED)
def test_who_is_lent_it(rule: str, hosts: tuple[str, ...], reached: bool, why: str) -> None:
    given = forge(f'["{rule}"]')
    assert (select_credentials(given, hosts) == given) is reached, why


# fmt: off
OPENLY = [
    ("https://git.example.com/team/", "http://git.example.com:443/team/", "the port of TLS says it"),
    ("https://git.example.com",       "http://git.example.com:443/",      "without a path"),
    ("https://git.example.com:8443/", "http://git.example.com:8443/",     "a port of its own"),
    ("https://[2001:db8::1]/x",       "http://[2001:db8::1]:443/x",       "an address in brackets"),
    ("https://[2001:db8::1]:1/x",     "http://[2001:db8::1]:1/x",         "and with a port"),
    ("http://git.example.com/x",      "http://git.example.com/x",         "plain stays plain"),
]
TOLD: list[tuple[str, dict[str, str], str]] = [
    ("", {"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_1": "url.http://git.example.com:443/team/.insteadOf", "GIT_CONFIG_VALUE_1": "https://git.example.com/team/"}, "Git, when nothing is said"),
    ('use = ["git=https://git.example.com/team/x/"]', {"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_1": "url.http://git.example.com:443/team/x/.insteadOf", "GIT_CONFIG_VALUE_1": "https://git.example.com/team/x/"}, "Git, for less"),
    ('use = ["pip=https://git.example.com/team/simple/"]', {"PIP_INDEX_URL": "http://git.example.com:443/team/simple/", "PIP_TRUSTED_HOST": "git.example.com:443"}, "pip"),
    ('use = ["npm=https://git.example.com/npm/"]', {"npm_config_registry": "http://git.example.com:443/npm/", "npm_config_replace_registry_host": "always"}, "npm"),
    ('use = ["GOPROXY=https://git.example.com/go"]', {"GOPROXY": "http://git.example.com:443/go"}, "a variable"),
    ('use = ["A_TOKEN=placeholder"]', {"A_TOKEN": "held-by-ringfence"}, "a placeholder"),
    ("intercept = true", {"SSL_CERT_FILE": "/b", "npm_config_cafile": "/b"}, "where TLS is opened, whom to believe"),
    ('intercept = true\nuse = ["gh"]', {"GH_HOST": "git.example.com", "GH_ENTERPRISE_TOKEN": "held-by-ringfence"}, "gh for a host of one's own"),
    ('intercept = true\nuse = ["FORGE_URL=https://git.example.com/"]', {"FORGE_URL": "https://git.example.com/"}, "an address stays what it is there"),
]
# fmt: on


@pytest.mark.parametrize(("address", "asked", "why"), OPENLY)
def test_how_a_program_asks(address: str, asked: str, why: str) -> None:
    assert asked_openly(address) == asked, why


@pytest.mark.parametrize(("lines", "told", "why"), TOLD, ids=[row[2] for row in TOLD])
def test_what_programs_are_told(lines: str, told: dict[str, str], why: str) -> None:
    before = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c", "PATH": "/bin"}
    found = add_credential_settings(
        forge('["git.example.com/team/"]' if "npm" not in lines else '["git.example.com"]', *lines.split("\n")),
        before,
        "/b",
    )
    assert before.items() <= {**found, "GIT_CONFIG_COUNT": "1"}.items()
    assert told.items() <= found.items(), why
    if "intercept" not in lines:
        assert set(found) - set(before) == set(told) - {"GIT_CONFIG_COUNT"}


def settings(tmp_path: Path, where: str, text: str, **told: Any) -> tuple[tuple[Credential, ...], tuple[str, ...]]:
    """Return the credentials and notices of a session with `text` in the file of the user or of a repository."""
    user, project = tmp_path / "config", tmp_path / "project"
    for folder in (user, project / ".ringfence"):
        folder.mkdir(parents=True, mode=0o700)
    (user if where == "user" else project / ".ringfence").joinpath("config.toml").write_text(text)
    found = load(project, {"HOME": str(tmp_path), "RINGFENCE_CONFIG_DIR": str(user)}, system=tmp_path / "none", **told)
    return found.profile.credentials, found.notices


@pytest.mark.threat("T85")
def test_only_your_own_files_lend(tmp_path: Path) -> None:
    """A repository could send what you have to a host of its own."""
    (mine,), notices = settings(tmp_path / "a", "user", GOOD)
    assert (mine.name, notices) == ("forge", ())
    theirs, notices = settings(tmp_path / "b", "project", GOOD)
    assert theirs == ()
    assert "`[[credential]]` is ignored" in notices[0]


def test_the_file_of_certificates_is_made_for_each_run_under_another_name() -> None:
    from policy.model.profile import Profile

    def bundle(*more: str) -> str:
        return with_bundle(Profile(*[()] * 8, credentials=forge('["git.example.com"]', *more))).bundle

    assert bundle() == ""
    first, second = bundle("intercept = true"), bundle("intercept = true")
    assert first != second
    assert not Path(first).exists()
