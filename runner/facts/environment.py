"""Environment of a command, built from nothing: the variables it needs and those that the profile names, and no
other.
"""

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase

from policy.model.facts import Facts
from policy.model.profile import Profile
from policy.model.secret_paths import Secrets, inside
from runner.facts.git.drivers import Drivers
from runner.state.paths import login_name
from sandbox.inside.regular_file import read_start, read_whole

EnvVariables = tuple[tuple[str, str], ...]

# A repository's own settings can name programs that Git starts. These override them. Filters and drivers, which have
# names, are overridden for commands that only read (`reading`): without its clean filter, Git would commit in the clear
# content that the filter encrypts. Programs that they start for other commands run inside the sandbox.
# fmt: off
_GIT = (
    ("core.fsmonitor",            "false"),
    ("core.hooksPath",            "/dev/null"),
    ("core.attributesFile",       "/dev/null"),
    ("core.pager",                "cat"),
    ("core.alternateRefsCommand", "true"),
    ("credential.helper",         ""),       # an empty one clears the list
    ("protocol.ext.allow",        "never"),
    ("interactive.diffFilter",    "cat"),
    ("log.showSignature",         "false"),
    ("log.follow",                "false"),  # past a rename, a log would show the secret that a file was before
    ("commit.gpgSign",            "false"),  # the sandbox contains no key
    ("tag.gpgSign",               "false"),
    ("gpg.program",               "gpg"),
    ("gpg.openpgp.program",       "gpg"),
    ("gpg.x509.program",          "gpgsm"),
    ("gpg.ssh.program",           "ssh-keygen"),
    ("gpg.ssh.defaultKeyCommand", ""),
    ("gc.auto",                   "0"),      # it would continue in the background, and end with the command
)
# For a workspace whose repository is outside of it: Git would tidy up the folders of other worktrees, which are
# read-only here and whose files it does not see. `reading` replaces these settings, because nothing is tidied up there.
_GIT_LINKED = (
    ("gc.reflogExpire",            "never"),
    ("gc.reflogExpireUnreachable", "never"),
    ("gc.worktreePruneExpire",     "never"),
)
_FIXED = {
    "TMPDIR":                 "/tmp",  # noqa: S108  # the sandbox's own
    "SHELL":                  "/bin/bash",  # the one that runs scripts; the user's own may not be here
    "PAGER":                  "cat",
    "MANPAGER":               "cat",
    "SYSTEMD_PAGER":          "cat",
    "LESSSECURE":             "1",
    "GIT_PAGER":              "cat",
    "GIT_EDITOR":             "true",
    "GIT_SEQUENCE_EDITOR":    "true",
    "GIT_ASKPASS":            "false",
    "GIT_PROXY_COMMAND":      "",  # of several proxies in the settings Git uses the first, not ours
    "SSH_ASKPASS":            "false",
    "GIT_SSH_COMMAND":        "ssh -F /dev/null -o BatchMode=yes",
    "GIT_OPTIONAL_LOCKS":     "0",
    "GIT_TERMINAL_PROMPT":    "0",
    "GIT_CONFIG_NOSYSTEM":    "1",
    "GIT_ATTR_NOSYSTEM":      "1",
}
# For a command that only reads. A partial clone would fetch missing objects with programs that its settings name, and
# an inner repository would be compared by a Git of its own.
_READING = {
    "GIT_NO_LAZY_FETCH":      "1",
    "GIT_ALLOW_PROTOCOL":     "",
    "PYTHONSAFEPATH":         "1",  # no module of the current folder instead of Python's own
    "GOTOOLCHAIN":            "local",  # not the one that go.mod names, which would be fetched and run
    "npm_config_manage_package_manager_versions": "false",  # nor the pnpm that package.json names
}
_GIT_READING = (
    ("diff.submodule",            "short"),
    ("status.submoduleSummary",   "false"),
    ("log.diffMerges",            "separate"),  # not by merging anew, which starts merge drivers
    ("alias.whatchanged",         "log --raw --no-merges"),  # newer versions let an alias replace it
)
# A folder of the workspace that looks like the inside of a repository is not used as one: Git refuses it. A
# command with an approval, or one that runs the project's code, may use such repositories: tests of programs make them.
_GIT_NO_BARE = (("safe.bareRepository", "explicit"),)
# fmt: on

# The folders of tools for fetched and built files: in the sandbox's own cache for the workspace. Most use the
# first (ccache, yarn 1, deno, corepack, pre-commit, node-gyp, mypy's own); these have names of their own.
# fmt: off
_CACHES = {
    "XDG_CACHE_HOME":         "",
    "PIP_CACHE_DIR":          "/pip",
    "UV_CACHE_DIR":           "/uv",
    "npm_config_cache":       "/npm",
    "pnpm_config_store_dir":  "/pnpm",  # since pnpm 11
    "YARN_CACHE_FOLDER":      "/yarn",
    "YARN_GLOBAL_FOLDER":     "/yarn-berry",
    "BUN_INSTALL_CACHE_DIR":  "/bun",
    "CARGO_HOME":             "/cargo",
    "GOCACHE":                "/go-build",
    "GOMODCACHE":             "/go-mod",
    "GRADLE_USER_HOME":       "/gradle",
    "MAVEN_OPTS":             "/maven",  # see `caching`
    "COURSIER_CACHE":         "/coursier",
    "NUGET_PACKAGES":         "/nuget",
    "COMPOSER_CACHE_DIR":     "/composer",
    "BUNDLE_USER_CACHE":      "/bundle",
    "PUB_CACHE":              "/pub",
    "CONDA_PKGS_DIRS":        "/conda",
    "CCACHE_DIR":             "/ccache",
}
# fmt: on

# Folders below the home that are readable and that the sandbox's own cache has too.
_READABLE = {"CARGO_HOME": (".cargo/registry", "cargo/registry"), "GOMODCACHE": ("go/pkg", "go-mod")}

# Variables with the folder of a toolchain. Kept only if that folder is readable anyway.
_FOLDERS = (
    "ANDROID_HOME", "ASDF_DATA_DIR", "ASDF_DIR", "BUN_INSTALL", "CARGO_HOME", "CONDA_PREFIX", "DENO_INSTALL",
    "DOTNET_ROOT", "GHCUP_INSTALL_BASE_PREFIX", "GOPATH", "GOROOT", "GRADLE_HOME", "HOMEBREW_CELLAR", "HOMEBREW_PREFIX",
    "HOMEBREW_REPOSITORY", "JAVA_HOME", "M2_HOME", "MAVEN_HOME", "MISE_DATA_DIR", "NODENV_ROOT", "NVM_BIN", "NVM_DIR",
    "PNPM_HOME", "PYENV_ROOT", "RBENV_ROOT", "RUSTUP_HOME", "SDKMAN_DIR", "VIRTUAL_ENV", "VOLTA_HOME",
)  # fmt: skip
_LONGEST_CONFIG = 1 << 20
_LONGEST_NAME = 200


def child_environment(facts: Facts, environ: Mapping[str, str], profile: Profile) -> tuple[tuple[str, str], ...]:
    """Return the variables sorted by name, so that equal environments compare equal.

    Of `environ`, the result includes only variables that the profile names, and those that name readable folders of
    toolchains or readable certificates.
    """
    wild = [pattern for pattern in profile.environment if any(char in pattern for char in "*?[")]
    variables = {
        name: value
        for name, value in environ.items()
        if (name in profile.environment or any(fnmatchcase(name, pattern) for pattern in wild))
        and _sendable(name, value)
    }
    variables |= _locale(variables)
    variables |= _folders(facts, environ)
    variables |= certificate_variables(
        trusting(environ, _outside(profile.authority, facts.workspace)), (*facts.system, facts.workspace)
    )
    variables |= {"PATH": ":".join(facts.path), "HOME": facts.home} | _FIXED
    linked = _GIT_LINKED if facts.repository else ()
    variables |= _numbered((*_GIT, ("safe.directory", facts.workspace), *linked), 0)
    # Git needs an address for a commit; its own settings override this one.
    variables["EMAIL"] = f"{login_name('user')}@localhost"
    # Git would rank a variable above the repository's settings, so those are looked at too.
    user, older = (_user_section(f"{facts.home}/{name}") for name in (".config/git/config", ".gitconfig"))
    shared = facts.repository[0] if facts.repository else f"{facts.workspace}/.git"
    for field, value in (user | older | _user_section(f"{shared}/config")).items():
        variables[f"GIT_AUTHOR_{field.upper()}"] = variables[f"GIT_COMMITTER_{field.upper()}"] = value
    return tuple(sorted((name, value) for name, value in variables.items() if _sendable(name, value)))


def reading(drivers: Drivers) -> tuple[tuple[str, str], ...]:
    """Return the extra variables for a read-only command: no driver of the repository, and no fetching."""
    settings = (*_GIT_READING, *(() if drivers.bare else _GIT_NO_BARE), *drivers.settings)
    return tuple(sorted((_READING | _numbered(settings, len(_GIT) + 1)).items()))


def caching(home: str, workspace: str, system: tuple[str, ...], cache: str) -> tuple[EnvVariables, EnvVariables]:
    """Return the extra variables for a command that may change the workspace: the cache of the sandbox, and more for a
    command that may fetch.

    Crates and modules that the user already has are readable. A command without a network uses only those until
    something was fetched into the sandbox's own cache; before that, only a command that may fetch uses that cache in
    their place.
    """
    variables = {name: f"{home}/.cache{below}" for name, below in _CACHES.items()}
    variables["MAVEN_OPTS"] = f"-Dmaven.repo.local={variables['MAVEN_OPTS']}"
    if not home.isprintable() or " " in home:
        del variables["MAVEN_OPTS"]  # Maven would split the value at a blank
    if os.path.lexists(f"{workspace}/pnpm-lock.yaml"):
        variables["npm_config_store_dir"] = variables["pnpm_config_store_dir"]  # before pnpm 11; npm would complain
    later = {
        name: variables.pop(name)
        for name, (yours, own) in _READABLE.items()
        if f"{home}/{yours}" in system and os.path.isdir(f"{home}/{yours}") and not os.path.isdir(f"{cache}/{own}")
    }
    return tuple(sorted(variables.items())), tuple(sorted(later.items()))


def _numbered(settings: tuple[tuple[str, str], ...], start: int) -> dict[str, str]:
    """Return Git settings as the variables that Git reads them from, numbered from `start`."""
    variables = {"GIT_CONFIG_COUNT": str(start + len(settings))}
    for number, (key, value) in enumerate(settings, start):
        variables[f"GIT_CONFIG_KEY_{number}"], variables[f"GIT_CONFIG_VALUE_{number}"] = key, value
    return variables


def _locale(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the locale variables. The parser and bash must decode bytes in the same way, which GBK and
    Shift-JIS prevent.
    """
    return {
        name: "C.UTF-8"
        for name, value in variables.items()
        if (name == "LANG" or name.startswith("LC_"))
        and not (value in ("C", "POSIX") or value.upper().replace("-", "").endswith("UTF8"))
    }


def _folders(facts: Facts, environ: Mapping[str, str]) -> dict[str, str]:
    folders = {}
    for name in _FOLDERS:
        value = environ.get(name, "")
        if not value.startswith("/") or "\0" in value:
            continue
        try:
            real = os.path.realpath(value)
        except (OSError, ValueError):
            continue
        # CARGO_HOME is the folder above what may be read, since it also holds the login.
        parts = name == "CARGO_HOME" and f"{real}/bin" in facts.system
        if parts or any(inside(real, root) for root in (*facts.system, facts.workspace)):
            folders[name] = real
    return folders


def _user_section(path: str) -> dict[str, str]:
    """Return the `[user]` section of a Git configuration file: plain lines only, includes are not followed."""
    user: dict[str, str] = {}
    section = ""
    text = read_start(path, _LONGEST_CONFIG, follow=True).decode("utf-8", "replace")  # empty if there is no such file
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("["):
            section, _, line = line[1:].partition("]")
            section, line = section.strip().lower(), line.strip()
        key, equals, value = line.partition("=")
        key, value = key.strip().lower(), value.strip()
        if section != "user" or not equals or key not in ("name", "email"):
            continue
        if value.startswith('"'):
            value = value[1:].partition('"')[0]
        else:
            value = value.partition(" #")[0].partition(" ;")[0].strip()
        if value and "\\" not in value and len(value) <= _LONGEST_NAME and value.isprintable():
            user[key] = value
    return user


def _sendable(name: str, value: str) -> bool:
    """Return True if `execve` accepts the variable: no NUL, no `=` in the name, and encodable text."""
    if not name or "=" in name or "\0" in name or "\0" in value:
        return False
    try:
        os.fsencode(name), os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


# The variables of OpenSSL, requests, curl, pip, Node, Git, Cargo, the AWS tools, Deno, Nix and npm.
_CERTIFICATE_FILES = (
    "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT", "NIX_SSL_CERT_FILE", "npm_config_cafile",
)  # fmt: skip
_LONGEST = 4 << 20  # bytes; a whole system's store is a tenth of that


def _outside(path: str, workspace: str) -> str:
    """Return `path`, or an empty text if the file is in the workspace, where commands can change it."""
    return "" if inside(os.path.realpath(path), workspace) else path


def trusting(environ: Mapping[str, str], authority: str) -> Mapping[str, str]:
    """Return `environ` with all certificate variables set to the file `authority`, if there is one."""
    return {**environ, **dict.fromkeys(_CERTIFICATE_FILES, authority)} if authority else environ


def certificate_files(environ: Mapping[str, str], workspace: str, secrets: Secrets) -> tuple[str, ...]:
    """Return the real paths of files outside the workspace that contain only certificates. Folders are not accepted."""
    return tuple(
        path
        for path in dict.fromkeys(_real_paths(environ, _CERTIFICATE_FILES).values())
        if not (inside(path, workspace) or secrets.exposed_by(path) or secrets.holds_folder(path))
        and _only_certificates(path)
    )


def certificate_variables(environ: Mapping[str, str], system: tuple[str, ...]) -> dict[str, str]:
    """Return the certificate variables whose targets are within `system`, with resolved paths."""
    real = _real_paths(environ, (*_CERTIFICATE_FILES, "SSL_CERT_DIR"))
    return {name: path for name, path in real.items() if any(inside(path, root) for root in system)}


def _real_paths(environ: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    values = {name: environ.get(name, "") for name in names}
    return {name: os.path.realpath(path) for name, path in values.items() if path[:1] == "/" and path.isprintable()}


def _only_certificates(path: str) -> bool:
    """Return True if the file is a text with certificates and without a key. Many people keep both in one file."""
    try:
        text = read_whole(path, _LONGEST, follow=True)
    except OSError:
        return False
    return b"-----BEGIN CERTIFICATE-----" in text and b"PRIVATE KEY" not in text
