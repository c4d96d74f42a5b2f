"""The broker that signs commits and tags for commands in the sandbox, with the user's key, outside of the sandbox.

Inside, Git finds a small script in place of gpg. The script leaves the text to sign as a file in a folder of the
sandbox's own cache, and waits for the answer beside it. No key, no agent socket and no program of the user is visible
inside. THREAT T139: commands can write to that folder. It is only used through the descriptor of the session's start,
without following links, and every request is a question to the user.
"""

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from policy.languages.git_object import LONGEST
from policy.model.facts import Facts
from policy.model.frozen import dataclass
from policy.model.secret_paths import inside
from policy.model.verdict import Permit, Problem, ProblemError
from sandbox.backend import SandboxUnavailable
from sandbox.inside.regular_file import open_regular, read_descriptor
from sandbox.workspace import tool_cache

PLACEHOLDER = "ringfence-signing-key"  # the name of the user's key inside the sandbox
_PATIENCE = 120.0  # seconds for gpg or ssh-keygen, which may ask for a passphrase
_REQUEST = re.compile(r"r[0-9]{1,10}-[0-9]{1,10}\.request")
_MOST_PENDING = 100  # requests at one time
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PROGRAMS = ("gpg.program", "gpg.openpgp.program")
_LONGEST_SIGNATURE = 64 << 10
_FORMS = {
    "openpgp": (b"-----BEGIN PGP SIGNATURE-----\n", b"-----END PGP SIGNATURE-----\n"),
    "ssh": (b"-----BEGIN SSH SIGNATURE-----\n", b"-----END SSH SIGNATURE-----\n"),
}
# A keyring of the command's own (`GNUPGHOME`) is used as without this script, and so is every other work of gpg.
_SCRIPT = """#!/bin/sh
# Stands for gpg inside the sandbox: passes a commit or tag to the agent outside, which asks the user for the signature.
[ -z "$GNUPGHOME" ] || exec gpg "$@"
case "$*" in *-bsau*) ;; *) exec gpg "$@" ;; esac
for key; do :; done
name=${0%/*}/r$$-$(date +%s)
{ printf '%s\\n' "$key" && cat; } > "$name.new" && mv "$name.new" "$name.request" || exit 1
while [ ! -e "$name.answer" ]; do sleep 0.1; done
read -r verdict < "$name.answer"
if [ "$verdict" = signed ]; then
    printf '\\n[GNUPG:] SIG_CREATED \\n' >&2
    tail -n +2 "$name.answer"
else
    tail -n +2 "$name.answer" >&2
fi
rm -f "$name.answer"
[ "$verdict" = signed ]
"""


class SigningError(ProblemError):
    """The error for a text that cannot be signed."""


@dataclass(frozen=True, slots=True)
class SignatureRequest:
    """A request of a command.

    Attributes:
        name: The name of the request, without `.request`.
        key: The key that the command names; `PLACEHOLDER` for the user's own.
        payload: The text to sign.
    """

    name: str
    key: str
    payload: bytes


class SigningKey:
    """The user's key and program for signatures, from the user's own Git settings, never from those of a repository."""

    def __init__(self, settings: Mapping[str, str], facts: Facts, environ: Mapping[str, str]) -> None:
        self.form = settings.get("gpg.format", "openpgp")
        self._environ = {name: value for name, value in environ.items() if not name.startswith("GIT_")}
        key = settings.get("user.signingkey", "")
        if self.form == "openpgp":
            self.name = key or f"{settings.get('user.name', '')} <{settings.get('user.email', '')}>"
            program = settings.get("gpg.openpgp.program") or settings.get("gpg.program") or "gpg"
        else:
            self.name, program = key, settings.get("gpg.ssh.program") or "ssh-keygen"
        found = program if program.startswith("/") else facts.which(program)
        self._program = found if found and not inside(os.path.realpath(found), facts.workspace) else None
        self._wanted = program

    async def sign(self, permit: Permit, payload: bytes) -> bytes:
        """Return the signature of `payload`, which `permit` allows. Raises SigningError.

        The arguments are fixed: those of Git, with the key of the user's settings.
        """
        if getattr(permit.action, "payload", None) != payload.decode() or self.form not in _FORMS:
            raise _failed(f"the format `{self.form}` is not supported", "set `gpg.format` to openpgp or ssh")
        if not self.name.strip() or self.name == " <>":
            raise _failed("no key is named", "set `user.signingKey` in your own Git settings")
        if self._program is None:
            raise _failed(f"the program `{self._wanted}` was not found outside of the workspace", "install it")
        with contextlib.ExitStack() as stack:
            if self.form == "openpgp":
                arguments = ["--status-fd=2", "-bsau", self.name]
            else:
                arguments = ["-Y", "sign", "-n", "git", "-f", *self._ssh_key(stack)]
            process = await asyncio.create_subprocess_exec(
                self._program, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                cwd="/", env=self._environ,
            )  # fmt: skip
            try:
                async with asyncio.timeout(_PATIENCE):
                    out, err = await process.communicate(payload)
            except TimeoutError:
                raise _failed(f"the program did not answer within {_PATIENCE:g} s", "unlock the key first") from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        first, last = _FORMS[self.form]
        if process.returncode != 0 or not (out.startswith(first) and out.endswith(last)) or not out.isascii():
            said = " ".join(err.decode("utf-8", "replace").split())[-300:]
            raise _failed(f"the program failed: {said}", "run `git commit -S` yourself to see the cause")
        if len(out) > _LONGEST_SIGNATURE:
            raise _failed("the signature is too long", "use another key")
        return out

    def _ssh_key(self, stack: contextlib.ExitStack) -> list[str]:
        """Return the arguments that name the key: a file, or a public key whose private part an agent has."""
        text = self.name.removeprefix("key::")
        if text == self.name and not text.startswith("ssh-"):
            home = self._environ.get("HOME", "")
            return [os.path.join(home, text[2:]) if text.startswith("~/") else text]
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ringfence-key-"))
        Path(folder, "key.pub").write_text(f"{text}\n", "utf-8")
        return [f"{folder}/key.pub", "-U"]


def _failed(why: str, fix: str) -> SigningError:
    return SigningError(Problem("the signature could not be made", why, fix))


class SigningBroker:
    """The folder through which commands of one session request signatures, and the key for them.

    Attributes:
        key: The user's key.
    """

    def __init__(self, facts: Facts, key: SigningKey) -> None:
        self.key = key
        self.name = f"ringfence-signing-{secrets.token_hex(8)}"
        self._cache, self._workspace = facts.cache, facts.workspace
        self._folder = -1

    def begin(self) -> bool:
        """Make the folder before the first command, and remove requests that an earlier command left.

        Return False if the folder cannot be made. Then Git reports that it cannot start gpg.
        """
        if self._folder < 0:
            try:
                tool_cache.ready(self._cache, self._workspace)
                os.mkdir(f"{self._cache}/{self.name}", 0o700)
                self._folder = os.open(f"{self._cache}/{self.name}", _FOLDER)
                self._write("gpg", _SCRIPT.encode(), 0o700)
            except (OSError, SandboxUnavailable):
                self.close()
                return False
        self.requests()
        return True

    def requests(self) -> tuple[SignatureRequest, ...]:
        """Return the requests that are waiting, and remove them. A file that cannot be a request is removed."""
        found = []
        with contextlib.suppress(OSError):
            for name in sorted(filter(_REQUEST.fullmatch, os.listdir(self._folder)))[:_MOST_PENDING]:
                # One byte more than is accepted, so that the reader of objects refuses a longer text.
                content = b""
                with contextlib.suppress(OSError, ValueError):
                    handle, _ = open_regular(name, follow=False, dir_fd=self._folder)
                    try:
                        content = read_descriptor(handle, LONGEST + 300)
                    finally:
                        os.close(handle)
                self._remove(name)
                key, _, payload = content.partition(b"\n")
                found.append(SignatureRequest(name.removesuffix(".request"), key.decode("utf-8", "replace"), payload))
        return tuple(found)

    def answer(self, request: SignatureRequest, signature: bytes | None, why: str = "") -> None:
        """Give a command its signature, or the reason why there is none."""
        content = b"signed\n" + signature if signature is not None else f"refused\n{why}\n".encode()
        with contextlib.suppress(OSError):  # the command removed the folder or made the file, and gets no answer
            self._write(f"{request.name}.partial", content, 0o600)
            os.rename(
                f"{request.name}.partial", f"{request.name}.answer", src_dir_fd=self._folder, dst_dir_fd=self._folder
            )

    def close(self) -> None:
        """Remove the folder. A folder that a command moved elsewhere stays in the cache."""
        if self._folder >= 0:
            shutil.rmtree(f"{self._cache}/{self.name}", ignore_errors=True)
            os.close(self._folder)
            self._folder = -1

    def _write(self, name: str, content: bytes, mode: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags, mode, dir_fd=self._folder)
        with open(handle, "wb") as file:
            file.write(content)

    def _remove(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._folder)
        except IsADirectoryError:
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=self._folder)


CommandEnvironment = tuple[tuple[str, str], ...]


def open_signing(
    facts: Facts, environ: Mapping[str, str], environment: CommandEnvironment, *, attended: bool
) -> tuple[SigningBroker | None, CommandEnvironment]:
    """Return the broker of a session, and the environment of its commands with the settings by which Git uses it.

    The broker is None if the sandbox has no cache, or without Git. In an unattended session it refuses every request,
    and commits are signed only if a command asks for it.
    """
    git = facts.which("git")
    if not facts.cache or git is None:
        return None, environment
    settings = _user_settings(git, environ)
    broker = SigningBroker(facts, SigningKey(settings, facts, environ))
    always = {f"{what}.gpgSign": settings.get(f"{what}.gpgsign", "false") for what in ("commit", "tag")}
    return broker, _with_broker(environment, f"{facts.home}/.cache/{broker.name}/gpg", always if attended else {})


def _with_broker(environment: CommandEnvironment, program: str, always: Mapping[str, str]) -> CommandEnvironment:
    """Return `environment` with Git's settings for the script `program`; `always` are settings that it overrides."""
    variables = dict(environment)
    count = int(variables.get("GIT_CONFIG_COUNT", "0"))
    for number in range(count):
        key = variables[f"GIT_CONFIG_KEY_{number}"]
        value = program if key in _PROGRAMS else always.get(key)
        if value is not None:
            variables[f"GIT_CONFIG_VALUE_{number}"] = value
    for key, value in (("gpg.format", "openpgp"), ("user.signingKey", PLACEHOLDER)):
        variables[f"GIT_CONFIG_KEY_{count}"], variables[f"GIT_CONFIG_VALUE_{count}"] = key, value
        count += 1
    variables["GIT_CONFIG_COUNT"] = str(count)
    return tuple(sorted(variables.items()))


def _user_settings(git: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the user and the system, without those of any repository; empty if Git fails."""
    kept = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
    variables = {name: value for name, value in environ.items() if not name.startswith("GIT_") or name in kept}
    variables |= {"GIT_DIR": "/dev/null", "GIT_CEILING_DIRECTORIES": "/"}
    try:
        done = subprocess.run(
            [git, "config", "--includes", "--list", "-z"], cwd="/", env=variables, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = (entry.partition("\n") for entry in done.stdout.decode("utf-8", "replace").split("\0") if entry)
    return {key: value for key, _, value in pairs}
