"""Options of `agent` for the API key, the request for a key that they make, and the input of a key.

A key is never echoed, and never an argument, which other programs can read.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from policy.model.frozen import dataclass
from runner.problems import usage
from runner.secrets.secret import LONGEST, Secret, usable
from runner.text.phrases import os_reason

if TYPE_CHECKING:
    from runner.config import Settings
    from runner.secrets.resolve import KeyRequest


@dataclass(frozen=True, slots=True)
class KeyFlags:
    """The values of `--account` and `--api-key-stdin`."""

    account: str | None = None
    from_stdin: bool = False

    def check(self, *, prompt_from_stdin: bool) -> None:
        """Raise a usage error for contradictory options, before anything is read."""
        from runner.secrets.accounts import is_account

        if self.from_stdin and prompt_from_stdin:
            why = "--api-key-stdin reads the key from it, and no other prompt is given"
            fix = "give the prompt as an argument or with --prompt-file"
            raise usage("standard input cannot be both the key and the prompt", why, fix)
        if self.from_stdin and self.account is not None:
            why = "one supplies a key, the other names a key of the keyring"
            raise usage("--api-key-stdin and --account exclude each other", why, "omit one of them")
        if self.account is not None and not is_account(self.account):
            what = "the name of the account cannot be used"
            raise usage(what, "it is not a valid account name", "see `agent auth status`")

    def read(self, provider: str) -> Secret | None:
        """Return the key from standard input if the options ask for that. A terminal prompts for the key and does not
        echo it.
        """
        if not self.from_stdin:
            return None
        return typed_key(provider) if os.isatty(0) else piped_key()


def key_request(
    settings: "Settings", provider: str, environ: Mapping[str, str], cwd: Path, flags: KeyFlags | None = None
) -> "KeyRequest":
    """Return the request for the key of `provider`, from `flags` and the configuration. The key is read from standard
    input if `flags` ask for that. Raise a usage error.
    """
    from runner.secrets.helper_command import PATIENCE, Helper
    from runner.secrets.resolve import KeyRequest
    from runner.state.workspace import workspace_at

    row = settings.named("auth").get(provider, {})
    words, seconds, account = row.get("helper"), row.get("helper_timeout", PATIENCE), row.get("account")
    argv = tuple(str(word) for word in words) if isinstance(words, tuple) else ()
    flags = flags or KeyFlags()
    return KeyRequest(
        provider,
        environ,
        account=flags.account,
        configured=str(account) if account is not None else None,
        stdin_key=flags.read(provider),
        helper=Helper(argv, float(seconds) if isinstance(seconds, int | float) else PATIENCE) if argv else None,
        workspace=workspace_at(os.path.realpath(cwd), environ),
    )


def is_stdin(path: Path) -> bool:
    """Return True if the file is standard input by another name, such as /dev/stdin."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(0))
    except OSError:
        return False


def take_terminal() -> bool:
    """Make the controlling terminal the standard input. Return False if there is none."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    os.dup2(terminal, 0)
    os.close(terminal)
    return True


_LINE = "send one line with the key on standard input"


def typed_key(provider: str) -> Secret:
    """Return the key that the user types at the terminal without echo. Earlier input is discarded."""
    import getpass
    import warnings

    key: Secret | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("error", getpass.GetPassWarning)  # else getpass would continue and show the key
        try:
            key = usable(getpass.getpass(f"API key for {provider} (it is not shown): "))
        except EOFError:
            pass
        except getpass.GetPassWarning:
            why, fix = "this terminal would show the key", "pipe the key into standard input"
            raise usage("the key cannot be typed here", why, fix) from None
    if key is None:
        raise usage("no key was read", "the input is empty or is not a key", "try again with the key alone")
    return key


def piped_key(*, whole: bool = False) -> Secret:
    """Return the first line of standard input; with `whole` no other line may follow. Raise a usage error.

    Without `whole`, no input after the line is read, so the writer may keep the pipe open. Single bytes are read,
    because later input may be for another reader.
    """
    line = bytearray()
    try:
        while len(line) <= LONGEST and (byte := os.read(0, 1)) not in (b"", b"\n"):
            line += byte
        more = whole and os.read(0, 1) != b""
    except OSError as error:
        why = f"standard input cannot be read: {os_reason(error)}"
        raise usage("no key was read", why, _LINE) from None
    key = usable(line.decode("ascii", "replace")) if line.strip() else None
    if key is not None and not more:
        return key
    why = "standard input has more than one line"
    if not line.strip():
        why = "standard input is empty, or begins with an empty line"
    elif key is None:
        why = "its first line has blanks or other characters, or is too long"
    raise usage("no key was read", why, _LINE)
