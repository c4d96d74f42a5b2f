"""Files that contain a secret only after a login: package managers keep tokens in their settings."""

import re

from policy.model.backup_names import originals

MOST = 1 << 18  # bytes that are looked at; a longer file is no file of settings, and counts as one with a login

# A value that names a variable (`${NPM_TOKEN}`) is no login. Sources: npmrc(5), yarnpkg.com/configuration/yarnrc,
# pip's user guide on authentication, learn.microsoft.com on nuget.config, conda's user guide on .condarc, Composer's
# "Authentication for privately hosted packages" (auth.json lies beside composer.json; agents keep tokens in a file of
# that name), Maven's "Settings Reference", Gradle's "Build Environment", curl(1), wgetrc in wget's manual, hgrc(5),
# RubyGems' guides, odbc.ini(5) of unixODBC, bun.sh/docs/runtime/bunfig, docs.astral.sh/uv, python-poetry.org/docs.
_VALUE = rb"[ \t]*[\"']?(?!\$|%[A-Z])[^\s\"'#]"
_ADDRESS = rb"://[^\s/:@$]*:(?!\$)[^\s/@]+@"
_PROPERTY = (
    rb"^[ \t]*[\w.-]*(?:password|passwd|passphrase|token|secret|api_?key)[\w.-]*[ \t]*[=:][ \t]*"
    rb"(?!\$|(?:true|false)\b)[^\s#]"
)
_ADDED = rb"^[ \t]*(?:token|password)[ \t]*=[ \t]*\"(?!\$)[^\"]|" + _ADDRESS
_LOGINS = {
    ".npmrc": rb"^[ \t]*(?:[^\s=;#]*:)?_(?:authToken|auth|password)[ \t]*=" + _VALUE + rb"|" + _ADDRESS,
    ".yarnrc": rb"^[ \t]*\"?[^\s\"#]*_(?:authToken|auth|password)\"?[ \t]+" + _VALUE + rb"|" + _ADDRESS,
    ".yarnrc.yml": rb"npm(?:AuthToken|AuthIdent)[\"']?[ \t]*:" + _VALUE + rb"|" + _ADDRESS,
    "pip.conf": _ADDRESS,
    "pip.ini": _ADDRESS,
    "uv.toml": _ADDRESS,
    "poetry.toml": _ADDED,
    "bunfig.toml": _ADDED + rb"|\btoken[ \t]*=[ \t]*\"(?!\$)[^\"]",
    "auth.json": rb"\"(?:http-basic|bearer|(?:github|gitlab|bitbucket)-oauth|(?:gitlab|forgejo)-token)\"\s*:\s*\{\s*\""
    rb"|\"(?:access|refresh|id)_?token\"\s*:\s*\"[^\"]|\"[A-Z_]+_API_KEY\"\s*:\s*\"[^\"]",
    "settings.xml": rb"<(?:password|passphrase|privateKey)>\s*(?!\$\{)[^<\s]",
    "gradle.properties": _PROPERTY,
    "local.properties": _PROPERTY,
    ".curlrc": rb"^[ \t]*-*(?:u|user|proxy-user|oauth2-bearer|pass)\b[ \t:=]+\S|Authorization:|" + _ADDRESS,
    "_curlrc": rb"^[ \t]*-*(?:u|user|proxy-user|oauth2-bearer|pass)\b[ \t:=]+\S|Authorization:|" + _ADDRESS,
    ".wgetrc": rb"^[ \t]*(?:http_?|ftp_?|proxy_?)?passw(?:or)?d[ \t]*=[ \t]*\S|Authorization:|" + _ADDRESS,
    ".hgrc": rb"^[ \t]*[\w.-]+\.password[ \t]*=[ \t]*\S|" + _ADDRESS,
    "hgrc": rb"^[ \t]*[\w.-]+\.password[ \t]*=[ \t]*\S|" + _ADDRESS,
    ".gemrc": rb"_api_key:[ \t]*\S|" + _ADDRESS,
    ".odbc.ini": rb"^[ \t]*(?:PWD|Password)[ \t]*=[ \t]*\S",
    "odbc.ini": rb"^[ \t]*(?:PWD|Password)[ \t]*=[ \t]*\S",
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
