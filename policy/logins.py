"""Files that are ordinary until somebody writes a login into them: package managers keep tokens in their settings."""

import re

from policy.backups import originals

MOST = 1 << 18  # bytes that are looked at; a longer file is no file of settings, and counts as one with a login

# A value that names a variable (`${NPM_TOKEN}`) is no login. Sources: npmrc(5), yarnpkg.com/configuration/yarnrc,
# pip's user guide on authentication, learn.microsoft.com on nuget.config, conda's user guide on .condarc.
_VALUE = rb"[ \t]*[\"']?(?!\$|%[A-Z])[^\s\"'#]"
_ADDRESS = rb"://[^\s/:@$]*:(?!\$)[^\s/@]+@"
_LOGINS = {
    ".npmrc": rb"^[ \t]*(?:[^\s=;#]*:)?_(?:authToken|auth|password)[ \t]*=" + _VALUE + rb"|" + _ADDRESS,
    ".yarnrc": rb"^[ \t]*\"?[^\s\"#]*_(?:authToken|auth|password)\"?[ \t]+" + _VALUE + rb"|" + _ADDRESS,
    ".yarnrc.yml": rb"npm(?:AuthToken|AuthIdent)[\"']?[ \t]*:" + _VALUE + rb"|" + _ADDRESS,
    "pip.conf": _ADDRESS,
    ".condarc": _ADDRESS + rb"|/t/[A-Za-z0-9-]{8,}",
    "nuget.config": rb"(?:ClearTextPassword|Password)\"[ \t]+value=\"(?!%)[^\"]",
}


def sometimes(name: str) -> bool:
    """Return True if a file called `name`, or one that it is a copy of, is a secret when it holds a login."""
    return any(each.lower() in _LOGINS for each in (name, *originals(name)))


def holds_login(name: str, content: bytes) -> bool:
    """Return True if `content` of a file called `name`, cut off after MOST + 1 bytes, holds a login."""
    names = {each.lower() for each in (name, *originals(name))} & _LOGINS.keys()
    found = any(re.search(_LOGINS[each], content, re.IGNORECASE | re.MULTILINE) for each in names)
    return found or (bool(names) and len(content) > MOST)
