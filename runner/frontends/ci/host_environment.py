"""The parts of a pipeline's machine that commands of a model must not get: variables, job files, stored credentials.

SOURCE: docs.github.com, "Workflow commands for GitHub Actions" (GITHUB_ENV and the other files by which a step speaks
to its job) and "Security hardening" (tokens in variables); github.com/actions/checkout (a token in `http.*.extraheader`
of `.git/config`, unless `persist-credentials: false`); docs.gitlab.com, "Predefined CI/CD variables".
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from policy.model.profile import Profile
from policy.model.secret_paths import inside
from runner.secrets.secret import names_secret, register_environment

# THREAT: no command gets these variables, even if the configuration lists them. `CI` is passed: programs read it.
NEVER = (
    "GITHUB_*", "ACTIONS_*", "RUNNER_*", "INPUT_*", "CI_*", "GITLAB_*", "FF_*", "BUILDKITE_*", "CIRCLE_*",
    "BITBUCKET_*", "JENKINS_*", "TEAMCITY_*", "SYSTEM_*", "AGENT_*", "BUILD_*", "TRAVIS_*", "DRONE_*", "WOODPECKER_*",
    "VAULT_*",
)  # fmt: skip
# Files by which a step sends commands to its job. A program that writes one sets variables or PATH of later steps.
_FILES = ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STATE", "GITHUB_STEP_SUMMARY")
# Variables that name a file or folder of credentials, which an earlier step may have put into the workspace.
_POINTING = (
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GHA_CREDS_PATH", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE",
    "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AZURE_CONFIG_DIR", "KUBECONFIG",
    "DOCKER_CONFIG", "NPM_CONFIG_USERCONFIG", "NETRC", "SSH_AUTH_SOCK", "GNUPGHOME", "PIP_CONFIG_FILE",
)  # fmt: skip


# Folders that are too general to be secret: commands could not use anything in them.
_USUAL = frozenset((
    "", "/", "/tmp", "/var/tmp", "/home", "/root", "/usr", "/etc", "/var", "/opt", "/dev", "/dev/shm",  # noqa: S108  # no file is created there
))  # fmt: skip


def command_environment(environ: Mapping[str, str], *, keep: Collection[str] = ()) -> dict[str, str]:
    """Return the environment that commands may get parts of.

    `keep` are the variables that the user's own `[[credential]]` tables name, for the proxy. Values that look like
    secrets are registered with the redactor first.
    """
    register_environment(environ)
    return {
        name: value
        for name, value in environ.items()
        if name in keep or not any(fnmatchcase(name, each) for each in NEVER)
    }


def deny_job_files(profile: Profile, environ: Mapping[str, str], workspace: str) -> Profile:
    """Return `profile` with additional secret paths and names, which no mode may read or write.

    They are those of the job's files and temporary folder, of Docker's socket, and of the files and folders that
    variables of credentials name.
    """
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
        if name in _POINTING or names_secret(name):
            for path in text.split(":"):
                real = os.path.realpath(path) if path.startswith("/") else "/"
                if not inside(workspace, real) and os.path.lexists(real):
                    found |= {path, real}
    found = {path.rstrip("/") for path in found} - _USUAL
    # A secret path inside the workspace would block the whole workspace, so such files are masked by their names.
    names = sorted(os.path.basename(path) for path in found if inside(path, workspace))
    return replace(
        profile,
        secret_paths=(*profile.secret_paths, *sorted(path for path in found if not inside(path, workspace))),
        secret_names=tuple(dict.fromkeys((*profile.secret_names, *names))),
    )
