"""What a pipeline's machine holds that no command of a model may have: variables, files of the job, kept credentials.

SOURCE: docs.github.com, "Workflow commands for GitHub Actions" (GITHUB_ENV and the other files by which a step speaks
to its job) and "Security hardening" (tokens in variables); github.com/actions/checkout (a token in `http.*.extraheader`
of `.git/config`, unless `persist-credentials: false`); docs.gitlab.com, "Predefined CI/CD variables".
"""

import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from policy.profile import Profile
from policy.record import dataclass
from policy.secrecy import inside
from runner import live_secrets
from runner.problems import usage
from runner.secrets import Secret
from runner.undo import below

# THREAT: whatever the configuration lists, these enter no command. `CI` itself does: programs ask for it.
NEVER = (
    "GITHUB_*", "ACTIONS_*", "RUNNER_*", "INPUT_*", "CI_*", "GITLAB_*", "FF_*", "BUILDKITE_*", "CIRCLE_*",
    "BITBUCKET_*", "JENKINS_*", "TEAMCITY_*", "SYSTEM_*", "AGENT_*", "BUILD_*", "TRAVIS_*", "DRONE_*", "WOODPECKER_*",
    "VAULT_*",
)  # fmt: skip
# By which a step speaks to its job: who may write one sets variables and the PATH of the steps that follow.
_FILES = ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY")
# That name a file or folder of credentials, which a step before may have put into the workspace.
_POINTING = (
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GHA_CREDS_PATH", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE",
    "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_CONFIG_DIR", "KUBECONFIG",
    "DOCKER_CONFIG", "NPM_CONFIG_USERCONFIG", "NETRC", "SSH_AUTH_SOCK", "GNUPGHOME", "PIP_CONFIG_FILE",
)  # fmt: skip
_LARGEST = 1 << 20
_LOGIN = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?P<login>[^/@\s\"']+)@", re.IGNORECASE)
_KEYS = ("extraheader", "oauthtoken", "token", "password", "smtppass", "authtoken")


def environment(environ: Mapping[str, str], *, keep: Collection[str] = ()) -> dict[str, str]:
    """What commands may be given something of; `keep`: what the user's own `[[credential]]` names, for the proxy. The
    redactor knows the rest first, where it looks like a secret."""
    live_secrets.from_environment(environ)
    return {
        name: value
        for name, value in environ.items()
        if name in keep or not any(fnmatchcase(name, each) for each in NEVER)
    }


def closed(profile: Profile, environ: Mapping[str, str], workspace: str) -> Profile:
    """`profile` in which the files of the job, and of credentials, are secrets: in no mode is one read or written."""
    found: set[str] = set()
    for name in _FILES:
        path = environ.get(name, "")
        if path.startswith("/"):
            real = os.path.realpath(path)
            above = os.path.dirname(real)
            found |= {path, real} if above in ("/", "") or inside(workspace, above) else {path, real, above}
    temporary = environ.get("RUNNER_TEMP", "")
    if temporary.startswith("/") and not inside(workspace, os.path.realpath(temporary)):
        found |= {os.path.realpath(temporary)}
    daemon = environ.get("DOCKER_HOST", "")
    if daemon.startswith("unix:///"):
        found |= {os.path.realpath(daemon.removeprefix("unix://"))}
    for name, text in environ.items():
        if name in _POINTING or live_secrets.speaks_of_one(name):
            for path in text.split(":"):
                real = os.path.realpath(path) if path.startswith("/") else "/"
                if not inside(workspace, real) and os.path.lexists(real):
                    found |= {path, real}
    found = {path.rstrip("/") for path in found} - {"", "/", *_usual()}
    # A secret place in the workspace would close all of it; a secret name is masked there.
    names = sorted(os.path.basename(path) for path in found if inside(path, workspace))
    return replace(
        profile,
        secret_paths=(*profile.secret_paths, *sorted(path for path in found if not inside(path, workspace))),
        secret_names=tuple(dict.fromkeys((*profile.secret_names, *names))),
    )


def _usual() -> tuple[str, ...]:
    """Folders that everything lives in; to call them secret would hide all of it."""
    return ("/tmp", "/var/tmp", "/home", "/root", "/usr", "/etc", "/var", "/opt", "/dev", "/dev/shm")  # noqa: S108


@dataclass(frozen=True, slots=True)
class Kept:
    """A credential in the settings of a repository: `file` below the workspace, `key` as Git writes it."""

    file: str
    key: str


def credentials(workspace: str) -> tuple[Kept, ...]:
    """Those in Git's settings that a command in the workspace could read. What they hold is masked from now on."""
    found = []
    for path in _settings(workspace):
        text = _text(workspace, path)
        _, kept = without(text)
        for key, value in kept:
            found.append(Kept(path, key))
            for part in (value, *value.split()):
                if len(part) >= live_secrets.SHORTEST:
                    Secret(part)
    return tuple(found)


def refuse(kept: tuple[Kept, ...]) -> None:
    """Raises a usage error when there are any."""
    if not kept:
        return
    more = f" and {len(kept) - 1} more" if len(kept) > 1 else ""
    raise usage(
        f"`{kept[0].file}` holds a credential: `{kept[0].key}`{more}",
        "every command in the workspace can read it, and a prompt could ask one to",
        "check out without it (GitHub: `persist-credentials: false` for actions/checkout; GitLab: "
        "`FF_GIT_URLS_WITHOUT_TOKENS: 'true'`), or add --review, whose copy has none",
    )


def strip(copy: str) -> None:
    """Take them out of a copy of a workspace. Raises OSError."""
    for path in _settings(copy):
        text, kept = without(_text(copy, path))
        if kept:
            above, name = below.split(path)
            top = below.open_root(copy)
            try:
                with below.folder(top, above) as folder:
                    handle = os.open(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                    with open(handle, "wb") as file:
                        file.write(os.fsencode(text))
            finally:
                os.close(top)


def without(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Settings of Git without credentials, and what was in them: key and value."""
    kept: list[tuple[str, str]] = []
    lines: list[str] = []
    section, dropping = "", False
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if dropping:
            dropping = bare.endswith("\\")
            kept[-1] = (kept[-1][0], f"{kept[-1][1]}{bare}")
            continue
        if bare.startswith(("#", ";")):
            lines.append(_unlogged(line, section, kept))
            continue
        if bare.startswith("["):
            section = bare[1:].partition("]")[0].replace('"', "").strip()
            section, bare = _LOGIN.sub(r"\g<scheme>", section), bare.partition("]")[2].strip()
        key, equals, value = bare.partition("=")
        if equals and any(key.strip().lower() == each for each in _KEYS) and value.strip(' "'):
            kept.append((f"{section}.{key.strip()}".replace(" ", "."), value.strip().strip('"')))
            dropping = bare.endswith("\\")
            if line.lstrip().startswith("["):
                lines.append(line[: line.index("]") + 1] + "\n")
            continue
        lines.append(_unlogged(line, section, kept))
    return "".join(lines), tuple(kept)


def _unlogged(line: str, section: str, kept: list[tuple[str, str]]) -> str:
    """A line without the logins of its addresses."""

    def login(found: re.Match[str]) -> str:
        name, colon, word = found["login"].partition(":")
        web = found["scheme"].lower().startswith("http")
        if (colon and word) or (web and len(name) >= live_secrets.SHORTEST):
            key = line.partition("=")[0].strip() if not line.lstrip().startswith("[") else "url"
            kept.append((f"{section}.{key}".replace(" ", "."), word or name))
            return found["scheme"]
        return found[0]

    return _LOGIN.sub(login, line)


def _settings(workspace: str) -> Iterator[str]:
    """Where Git's settings lie below the workspace: of every repository in it, of their submodules and worktrees."""
    for folder, folders, files in os.walk(workspace, followlinks=False):
        bare = "HEAD" in files and {"objects", "refs"} <= set(folders)
        inner = folder == f"{workspace}/.git" or "/.git/" in f"{folder[len(workspace) :]}/"
        if bare or inner:
            folders[:] = [name for name in folders if name not in ("objects", "refs", "logs", "hooks", "lfs")]
            for name in ("config", "config.worktree"):
                if name in files:
                    yield os.path.relpath(f"{folder}/{name}", workspace)


def _text(workspace: str, path: str) -> str:
    """Of a regular file below the workspace, by no link; empty when there is none."""
    above, name = below.split(path)
    try:
        top = below.open_root(workspace)
    except OSError:
        return ""
    try:
        with below.folder(top, above) as folder:
            handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            with open(handle, "rb") as file:
                return os.fsdecode(file.read(_LARGEST)) if stat.S_ISREG(os.fstat(handle).st_mode) else ""
    except OSError:
        return ""
    finally:
        os.close(top)
