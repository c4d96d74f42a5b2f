"""Tests of the descriptions of secrets: the closest known words, and the usual ones everywhere else."""

import pytest

from policy.describe.phrases import UNKNOWN_KIND, secret_kind

# fmt: off
KINDS = (
    ("/w/.env",                        "an environment file that may hold passwords", "no key"),
    ("/w/prod.env",                    "an environment file that may hold passwords", "by its end"),
    (".env",                           "an environment file that may hold passwords", "a name alone"),
    ("/home/me/.ssh/id_rsa",           "a private key",                               "the file, before its folder"),
    ("~/.ssh/id_ed25519",              "a private key",                               "as a person writes it"),
    ("/home/me/.ssh",                  "where private keys and logins are kept",      "the folder"),
    ("/w/server.pem",                  "a private key",                               "by its end"),
    ("/w/store.JKS",                   "a store of private keys",                     "upper case"),
    ("/home/me/.bash_history",         "a history of typed commands",                 "a history"),
    ("/etc/shadow",                    "the password file of the machine",            "the machine's"),
    ("/dev/sda1",                      "a whole disk",                                "no key either"),
    ("/proc/1/environ",                "the environment of another program",          "another program"),
    ("/run/docker.sock",               "control of containers that is equivalent to root", "a socket"),
    ("/home/me/.mozilla/firefox/x",    "saved sessions and passwords of a browser or mail program", "a profile"),
    ("/home/me/.aws/credentials",      UNKNOWN_KIND,                                "the usual words"),
    ("/w/my.environment",              UNKNOWN_KIND,                                "only the end of a name counts"),
)
# fmt: on


@pytest.mark.parametrize(("path", "words", "why"), KINDS)
def test_a_secret_is_called_what_it_is(path: str, words: str, why: str) -> None:
    assert secret_kind(path) == words, why
