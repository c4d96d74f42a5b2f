"""Rows of `[[credential]]` as a configuration has them."""

from policy.model.credential import Credential
from policy.toml.schema import read
from runner.config.credential_table import CREDENTIAL_KEYS, credentials


def rows(text: str) -> tuple[Credential, ...]:
    """From `[[credential]]` in TOML."""
    return credentials(read(text, "test.toml", {}, {"credential": CREDENTIAL_KEYS}).entries)


def forge(hosts: str, *more: str) -> tuple[Credential, ...]:
    lines = ["[[credential]]", 'name = "forge"', f"hosts = {hosts}", 'env = "FORGE_TOKEN"', *more]
    if not any(line.startswith(("header", "basic")) for line in more):
        lines.append('header = "Authorization: Bearer {secret}"')
    return rows("\n".join(lines))
