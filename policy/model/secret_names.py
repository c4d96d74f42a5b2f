"""Names of secret files: copies that editors, version control and file managers make, and files that hold logins."""

import re
from functools import lru_cache

MOST_DEEP = 3  # steps from a copy to its original: a copy of a copy of a copy
LONGEST = 255  # characters of a name; NAME_MAX limits names to as many bytes

_WORDS = (
    r"bac?k(?:up)?|bkp|bck|old|orig(?:inal)?|save[ds]?|sav|copy|te?mp|prev(?:ious)?|rej|mine|theirs|r[0-9]+"
    r"|base|this|other|new|lock|disabled|gz|bz2|xz|zst|lz4|zip|7z|tgz|b64|base64"
    r"|part(?:ial)?|vsctmp|(?:dpkg|ucf)-(?:old|new|dist|bak|tmp)|rpm(?:save|orig|new)|pac(?:save|orig|new)|[0-9][0-9._:t-]*"
)
# Only names with one of these marks are matched against the patterns of copies.
_MARKS = (
    rf"[~#]|copy|,v\Z|\.sync-conflict-|___jb_|[._-](?:{_WORDS})(?:[._-]?[0-9][0-9._:t-]*)?\Z|\.(?:s[a-w][a-z]|kate-swp|un)\Z"
    r"|\A\..+\.[a-z0-9]{6}\Z| \(?[0-9]|[._-](?:bac?k(?:up)?|old|orig)\.[^.]+\Z|_(?:backup|base|local|remote)_[0-9]"
)
# Texts, not compiled patterns: `re` compiles them at their first use and caches them, and most commands need none.
_COPIES = (
    # GNU programs: `NAME~`, and `NAME.~1~` of Emacs and `cp --backup=numbered`. Emacs: `#NAME#`, `.#NAME`.
    # Office: `~$NAME`.
    r"(.+?)(?:\.~[0-9]+)?~",
    r"#(.+)#",
    r"\.#(.+)",
    r"~\$(.+)",
    # vim(1): `.NAME.swp`, `.swo` and so on, and `.NAME.un~` (the first pattern removes the `~`). Kate:
    # `.NAME.kate-swp`.
    r"(\..+)\.(?:s[a-w][a-z]|un|kate-swp)",
    r"\.(.+)\.(?:s[a-w][a-z]|un|kate-swp)",
    r"(.+)\.s[vw][a-z]",
    # JetBrains' safe write
    r"(.+)___jb_(?:tmp|old|bak)___",
    # Endings that users and programs append: `NAME.bak`, `NAME.old.2`, `NAME.20260101`, `NAME.save.1` (nano),
    # `NAME.orig` and `NAME.rej` (patch), `NAME.mine` and `NAME.r12` (Subversion), `NAME.dpkg-old`, `NAME.rpmsave`,
    # `NAME.pacsave`, `NAME.BASE` and `NAME.OTHER` (Breezy), `NAME.lock` (git-credential-store(1) writes the new
    # content there), packed copies.
    rf"(.+?)[._-](?:{_WORDS})(?:[._-]?[0-9][0-9._:t-]*)?",
    # rsync(1): `.NAME.a1B2c3`
    r"\.(.+)\.[a-z0-9]{6}",
    r"copy of (.+)",
    # rcsintro(1)
    r"(.+),v",
)
# Marks before the ending: `NAME_BACKUP_12.json` (git-mergetool(1)), `NAME copy.json`, `NAME (1).json`,
# `NAME 2.json` (Finder), `NAME.bak.json`, `NAME (X's conflicted copy 2026-01-31).json` (Dropbox, Nextcloud),
# `NAME.sync-conflict-20260131-120000-ABCDEFG.json` (Syncthing).
_BEFORE_ENDING = (
    r"(.+?)(?:_(?:backup|base|local|remote)_[0-9]+|(?: -|[_-])? ?\(?copy\)?(?: ?\(?[0-9]+\)?)?| ?\([0-9]+\)| [0-9]+"
    r"| \([^()]*conflicted copy[^()]*\)|\.sync-conflict-[0-9]{8}-[0-9]{6}(?:-[a-z0-9]+)?"
    r"|[._-](?:bac?k(?:up)?|old|orig))(\.[^.]+)?"
)
_FLAGS = re.IGNORECASE | re.DOTALL
# The hooks that `git init` writes into each repository. None has a mark, and compiling the pattern of the marks for
# them would take a hundredth of a short command.
SAMPLES = frozenset(
    f"{hook}.sample"
    for hook in (
        *("applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-update", "pre-applypatch", "pre-commit"),
        *("pre-merge-commit", "pre-push", "pre-rebase", "pre-receive", "prepare-commit-msg", "push-to-checkout"),
        *("sendemail-validate", "update"),
    )
)


@lru_cache(maxsize=1 << 14)
def originals(name: str) -> tuple[str, ...]:
    """Return the names of the files that a file called `name` may be a copy of, nearest first; empty for most names.

    `.env~`, `#.env#` and `.env.swp` come from `.env`, and so does `.env.bak.1~`: copies of copies are followed.
    """
    found: dict[str, None] = {}
    names = [name] if len(name) <= LONGEST else []
    for _ in range(MOST_DEEP):
        names = [each for copy in names for each in _copied(copy) if each != name and each not in found]
        found |= dict.fromkeys(names)
    return tuple(found)


def _copied(name: str) -> list[str]:
    # Every pattern of `_COPIES` and `_BEFORE_ENDING` needs one of these signs, a dot not only before the first one.
    if "." not in name[1:] and not any(sign in name for sign in "~#,_- ") and "copy" not in name.lower():
        return []
    if name in SAMPLES:
        return []
    # Without `IGNORECASE`, which some letters outside of ASCII need, the pattern compiles in half of the time.
    if not (re.search(_MARKS, name.lower()) if name.isascii() else re.search(_MARKS, name, re.IGNORECASE)):
        return []
    found = [match[1] for match in (re.fullmatch(each, name, _FLAGS) for each in _COPIES) if match]
    match = re.fullmatch(_BEFORE_ENDING, name, _FLAGS)
    return [*found, f"{match[1]}{match[2] or ''}"] if match else found


MOST = 1 << 18  # bytes that are searched; a longer file is not a settings file and is treated as one with a login

# A value that names a variable (`${NPM_TOKEN}`) is no login. Sources: npmrc(5), yarnpkg.com/configuration/yarnrc,
# pip's user guide on authentication, learn.microsoft.com on nuget.config, conda's user guide on .condarc, Composer's
# "Authentication for privately hosted packages" (auth.json is in the folder of composer.json; agents keep tokens in a
# file of that name), Maven's "Settings Reference", Gradle's "Build Environment", curl(1), wgetrc in wget's manual,
# hgrc(5), RubyGems' guides, odbc.ini(5) of unixODBC, bun.sh/docs/runtime/bunfig, docs.astral.sh/uv,
# python-poetry.org/docs.
_VALUE = rb"[ \t]*[\"']?(?!\$|%[A-Z])[^\s\"'#]"
_ADDRESS = rb"://[^\s/:@$]*:(?!\$)[^\s/@]+@"
_PROPERTY = (
    rb"^[ \t]*[\w.-]*(?:password|passwd|passphrase|token|secret|api_?key)[\w.-]*[ \t]*[=:][ \t]*"
    rb"(?!\$|(?:true|false)\b)[^\s#]"
)
_ADDED = rb"^[ \t]*(?:token|password)[ \t]*=[ \t]*\"(?!\$)[^\"]|" + _ADDRESS
_CURL = rb"^[ \t]*-*(?:u|user|proxy-user|oauth2-bearer|pass)\b[ \t:=]+\S|Authorization:|" + _ADDRESS
# Settings of agents: variables of programs that they start, and headers of servers.
_AGENT = (
    rb"\"(?-i:[A-Z0-9_]*(?:TOKEN|API_?KEY|SECRET|PASSWORD))\"\s*:\s*\"(?!\$)[^\"]{8}"
    rb"|\"(?:Authorization|x-api-key|api_?key)\"\s*:\s*\"(?:(?:Bearer|Basic|token)\s+)?(?!\$)[^\"\s]{8}"
)
_LOGINS = {
    ".npmrc": rb"^[ \t]*(?:[^\s=;#]*:)?_(?:authToken|auth|password)[ \t]*=" + _VALUE + rb"|" + _ADDRESS,
    ".yarnrc": rb"^[ \t]*\"?[^\s\"#]*_(?:authToken|auth|password)\"?[ \t]+" + _VALUE + rb"|" + _ADDRESS,
    ".yarnrc.yml": rb"npm(?:AuthToken|AuthIdent)[\"']?[ \t]*:" + _VALUE + rb"|" + _ADDRESS,
    **dict.fromkeys(("pip.conf", "pip.ini"), _ADDRESS),
    "uv.toml": _ADDRESS,
    "poetry.toml": _ADDED,
    "bunfig.toml": _ADDED + rb"|\btoken[ \t]*=[ \t]*\"(?!\$)[^\"]",
    "auth.json": rb"\"(?:http-basic|bearer|(?:github|gitlab|bitbucket)-oauth|(?:gitlab|forgejo)-token)\"\s*:\s*\{\s*\""
    rb"|\"(?:access|refresh|id)_?token\"\s*:\s*\"[^\"]|\"[A-Z_]+_API_KEY\"\s*:\s*\"[^\"]",
    "settings.xml": rb"<(?:password|passphrase|privateKey)>\s*(?!\$\{)[^<\s]",
    **dict.fromkeys(("gradle.properties", "local.properties"), _PROPERTY),
    **dict.fromkeys((".curlrc", "_curlrc"), _CURL),
    ".wgetrc": rb"^[ \t]*(?:http_?|ftp_?|proxy_?)?passw(?:or)?d[ \t]*=[ \t]*\S|Authorization:|" + _ADDRESS,
    **dict.fromkeys((".hgrc", "hgrc"), rb"^[ \t]*[\w.-]+\.password[ \t]*=[ \t]*\S|" + _ADDRESS),
    ".gemrc": rb"_api_key:[ \t]*\S|" + _ADDRESS,
    **dict.fromkeys((".odbc.ini", "odbc.ini"), rb"^[ \t]*(?:PWD|Password)[ \t]*=[ \t]*\S"),
    ".condarc": _ADDRESS + rb"|/t/[A-Za-z0-9-]{8,}",
    **dict.fromkeys(("settings.json", "settings.local.json", "mcp.json", ".mcp.json", "mcp_config.json"), _AGENT),
    "nuget.config": rb"(?:ClearTextPassword|Password)\"[ \t]+value=\"(?!%)[^\"]",
}


def sometimes(name: str) -> bool:
    """Return True if a file called `name` is secret if it contains a login: `.npmrc`, or a copy such as `.npmrc~`."""
    return name.lower() in _LOGINS or any(each.lower() in _LOGINS for each in originals(name))


def holds_login(name: str, content: bytes) -> bool:
    """Return True if `sometimes` holds for `name`, and `content` contains a login or has more than MOST bytes.

    The caller may cut `content` off after MOST + 1 bytes.
    """
    names = {each.lower() for each in (name, *originals(name))} & _LOGINS.keys()
    found = any(re.search(_LOGINS[each], content, re.IGNORECASE | re.MULTILINE) for each in names)
    return found or (bool(names) and len(content) > MOST)
