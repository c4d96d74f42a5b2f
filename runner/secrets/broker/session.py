"""The credentials of a run, from its settings to the injector for the sandbox, with their removal at the end."""

import contextlib
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.profile import Profile

if TYPE_CHECKING:
    from sandbox.egress.credential_injection import InjectorFactory

# Commands can read this folder. The state folder is hidden from commands, and each command has a private /tmp.
_FOLDER = "/var/tmp"  # noqa: S108  # the folder created in it has a random name and must not exist before


def with_bundle(profile: Profile) -> Profile:
    """Return `profile` with the path of the certificate bundle if TLS is intercepted. No file is created."""
    if not any(credential.intercept for credential in profile.credentials):
        return profile
    return replace(profile, bundle=f"{_FOLDER}/ringfence-{secrets.token_hex(12)}/certificates.crt")


@contextlib.contextmanager
def injector_for(profile: Profile, environ: Mapping[str, str], workspace: str) -> "Iterator[InjectorFactory | None]":
    """Yield the function that creates brokers, or None without credentials. If TLS is intercepted, the file
    `profile.bundle` exists inside the context and is removed at its end.
    """
    if not profile.credentials:
        yield None
        return
    from runner.secrets.broker.injector import CredentialInjector

    if not profile.bundle:
        yield CredentialInjector(profile.credentials, environ, workspace, store=profile.authority).lend
        return
    from runner.secrets.broker.session_ca import Authority, store

    opened = [each for each in profile.credentials if each.intercept]
    authority = Authority(rule.host for each in opened for rule in each.rules)
    bundle = Path(profile.bundle)
    bundle.parent.mkdir(mode=0o700)  # raises if it exists, since another process could have created it
    try:
        bundle.parent.chmod(0o755)
        bundle.write_bytes(store(profile.authority or environ.get("SSL_CERT_FILE", "")) + authority.pem())
        bundle.chmod(0o444)
        known = profile.authority
        yield CredentialInjector(profile.credentials, environ, workspace, authority=authority, store=known).lend
    finally:
        shutil.rmtree(bundle.parent, ignore_errors=True)
