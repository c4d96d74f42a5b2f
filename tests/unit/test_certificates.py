"""Tests of a company's certificates: shown if they are only certificates, and named to the programs that look for
them.
"""

from pathlib import Path

import pytest

from policy.toml.profile import parse_profile
from runner.facts.environment import child_environment
from runner.facts.gather import gather
from tests.support.places import ROOT

PROFILE = parse_profile((ROOT / "profiles" / "default.toml").read_text("utf-8"), "default.toml")
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("name", "content", "shown", "why"),
    [
        ("certs/corp.pem", CERTIFICATE, True, "a certificate, though names like this may hold keys"),
        ("certs/corp.pem", CERTIFICATE + "-----BEGIN RSA PRIVATE KEY-----\n", False, "with its key"),
        ("certs/corp.pem", "", False, "nothing"),
        ("certs/corp.crt", CERTIFICATE, True, "another name"),
        (".ssh/corp.crt", CERTIFICATE, False, "in a secret place"),
        ("certs", None, False, "a folder"),
        ("none.pem", None, False, "missing"),
    ],
)
@pytest.mark.threat("T03")
def test_what_a_variable_names_is_shown_when_it_is_certificates_alone(
    tmp_path: Path, name: str, content: str | None, shown: bool, why: str
) -> None:
    top = tmp_path.resolve()
    path = top / "home" / name
    (top / "home" / "certs").mkdir(parents=True)
    (top / "project").mkdir()
    if content is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    environ = {"HOME": str(top / "home"), "PATH": "/usr/bin", "SSL_CERT_FILE": str(path), "PIP_CERT": "corp.pem"}
    facts = gather(str(top / "project"), environ, PROFILE)
    environment = dict(child_environment(facts, environ, PROFILE))
    assert (str(path) in facts.system) is shown, why
    assert environment.get("SSL_CERT_FILE") == (str(path) if shown else None), why
    assert "PIP_CERT" not in environment
    inner = top / "project" / "corp.crt"
    inner.write_text(CERTIFICATE)
    own = gather(str(top / "project"), environ | {"SSL_CERT_FILE": str(inner)}, PROFILE)
    assert str(inner) not in own.system, "it is in the workspace, where commands may change it"
    assert dict(child_environment(own, environ | {"SSL_CERT_FILE": str(inner)}, PROFILE))["SSL_CERT_FILE"] == str(inner)
    assert [root for root in facts.system if root.startswith(f"{top}/home") and root != str(path)] == []


def test_stores_of_the_system_stay_named(tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin",
        "SSL_CERT_DIR": "/etc/ssl/certs",
        "CURL_CA_BUNDLE": "/etc/shadow",
    }
    facts = gather(str(tmp_path / "p"), environ, PROFILE)
    environment = dict(child_environment(facts, environ, PROFILE))
    assert (environment["SSL_CERT_DIR"], "CURL_CA_BUNDLE" in environment) == ("/etc/ssl/certs", False)
    assert "/etc/shadow" not in facts.system
