"""The certificates that a company's machines trust: named in variables and shown to commands, but never with a key."""

import os
from collections.abc import Mapping

from policy.model.secret_paths import Secrets, inside
from sandbox.inside.regular_file import read_whole

# Whose programs look there: OpenSSL, requests, curl, pip, Node, Git, Cargo, the AWS tools, Deno, Nix.
_FILES = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT", "NIX_SSL_CERT_FILE", "npm_config_cafile",
)  # fmt: skip
_FOLDERS = ("SSL_CERT_DIR",)
_LONGEST = 4 << 20  # bytes; a whole system's store is a tenth of that


def files(environ: Mapping[str, str], workspace: str, secrets: Secrets) -> tuple[str, ...]:
    """The real paths of files outside the workspace that hold certificates and nothing else. No folder is believed."""
    found = [os.path.realpath(environ[name]) for name in _FILES if _absolute(environ.get(name, ""))]
    return tuple(
        dict.fromkeys(
            path
            for path in found
            if not inside(path, workspace)
            and not secrets.exposed_by(path)
            and not secrets.holds_folder(path)
            and _only_certificates(path)
        )
    )


def variables(environ: Mapping[str, str], system: tuple[str, ...]) -> dict[str, str]:
    """Those of the variables that name what `system` shows, resolved."""
    found = {}
    for name in (*_FILES, *_FOLDERS):
        value = environ.get(name, "")
        if _absolute(value):
            real = os.path.realpath(value)
            if any(inside(real, root) for root in system):
                found[name] = real
    return found


def _absolute(value: str) -> bool:
    return value.startswith("/") and value.isprintable()


def _only_certificates(path: str) -> bool:
    """Return True if the file is a text with certificates and without a key. Many people keep both in one file."""
    try:
        text = read_whole(path, _LONGEST, follow=True)
    except OSError:
        return False
    return b"-----BEGIN CERTIFICATE-----" in text and b"PRIVATE KEY" not in text
