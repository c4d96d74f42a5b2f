"""Rights from the flags `--read`, `--write`, `--host` and `--env` for one action, checked before anything is judged."""

import os
import re
from dataclasses import replace

from policy.describe.phrases import plain
from policy.interpreter.assignments import undone_guard
from policy.model.verdict import Problem
from policy.permission.flag_rights import FlagRights
from policy.toml.profile import names_credential
from runner.problems import Exit, Stopped, usage
from runner.text.phrases import os_reason

MOST = 200  # of each; longer lists are not typed by hand
_KERNEL = ("/proc/", "/sys/", "/dev/")
_SCRATCH = "/tmp"  # noqa: S108  # of the machine; the sandbox has its own
_NAME = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789"


def parse_flag_rights(
    cwd: str,
    home: str,
    *,
    read: tuple[str, ...] = (),
    write: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
) -> FlagRights:
    """Return the rights that flags with these values grant. Raises a usage error for a flag that cannot be intended.

    A relative path starts at `cwd`, `~` is `home`; both are real folders.
    """
    for name, given in (("--read", read), ("--write", write), ("--host", hosts), ("--env", env)):
        if len(given) > MOST:
            why = f"{len(given)} are given, and at most {MOST} are allowed"
            raise usage(f"there are too many `{name}`", why, "name a folder that contains them, or write a rule")
    return FlagRights(
        read=tuple(dict.fromkeys(_path("--read", text, cwd, home) for text in read)),
        write=tuple(dict.fromkeys(_path("--write", text, cwd, home) for text in write)),
        hosts=tuple(dict.fromkeys(map(_host, hosts))),
        env=tuple(sorted(dict(map(_variable, env)).items())),
    )


def notices(given: FlagRights) -> tuple[str, ...]:
    """Return notices about the flags for the user."""
    return tuple(
        f"`--env {name}` looks like a credential: the command and all programs that it starts can read it"
        for name, value in given.env
        if names_credential(name) or _ISSUED.match(value) or (_RANDOM.fullmatch(value) and "/" not in value[:2])
    )


# Prefixes that issuers give to tokens, so that scanners find them; and any long mixture of letters and digits.
_ISSUED = re.compile(
    r"gh[pousr]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|ASIA|AIza|npm_|pypi-|hf_|dop_v1_|eyJ[A-Za-z0-9_-]+\.eyJ|-----BEGIN"
)
_RANDOM = re.compile(r"(?=[^\s]*[0-9])(?=[^\s]*[A-Za-z])[A-Za-z0-9+/_=-]{32,}")


def _path(flag: str, text: str, cwd: str, home: str) -> str:
    flag_text = f"`{flag} {plain(text)}`"
    path = home + text[1:] if text == "~" or text.startswith("~/") else text
    if not path or "\0" in path:
        raise usage(f"{flag_text} names no path", "it is empty or not a path", "name a file or folder that exists")
    if path.startswith("~"):
        raise usage(f"{flag_text} cannot be resolved", "only your own home is known, as `~/`", "write the full path")
    path = os.path.join(cwd, path)
    try:
        real = os.path.realpath(path, strict=True)
        if path.endswith("/") and not os.path.isdir(real):
            raise NotADirectoryError(20, "not a directory")
    except (OSError, ValueError) as error:
        why = os_reason(error)
        fix = "create it first, or name the folder that will contain it" if flag == "--write" else "check the spelling"
        raise usage(f"{flag_text} cannot be granted", why, fix) from None
    if (link := _led(path, cwd)) is not None:
        why = f"`{plain(os.path.relpath(link, cwd))}` is a symbolic link of the project to `{plain(real)}`"
        fix = "name the target itself if it is meant"
    elif real == "/":
        why, fix = "it is the root of all files", "name a narrower path"
    elif f"{real}/".startswith(_KERNEL):
        why, fix = "it belongs to the kernel, and every sandbox has its own", "name a narrower path"
    elif real == _SCRATCH:
        why = "every session has a `/tmp` of its own, empty at first"
        fix = "name a file or folder in it"
    else:
        return real
    raise usage(f"{flag_text} cannot be granted", why, fix)


def _led(path: str, cwd: str) -> str | None:
    """Return the link below `cwd` that `path` goes through. THREAT T69: a repository chooses the targets of its
    links.
    """
    at = "/"
    for part in path.split("/"):
        step = os.path.join(at, part)
        if os.path.islink(step) and (at == cwd or at.startswith(f"{cwd}/")):
            return step
        at = os.path.realpath(step)
    return None


def _host(text: str) -> str:
    from policy.model.host_rule import host_rule  # only if hosts are named

    rule = host_rule(text)
    if isinstance(rule, Problem):
        raise Stopped(replace(rule, what=f"`--host {plain(text)}` is not a host that can be allowed"), Exit.USAGE)
    return str(rule)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or name[0].isdigit() or any(char not in _NAME for char in name):
        what = f"`--env {plain(name or text)}` is not a variable"
        raise usage(what, "a name has letters, digits and `_`, and does not start with a digit", "write NAME=VALUE")
    if not equals:
        why = "no variable is copied from your own environment by its name alone"
        raise usage(f"`--env {name}` has no value", why, f'write `--env {name}="${name}"` to pass your own value')
    if "\0" in value:
        raise usage(f"`--env {name}` cannot be set", "its value contains a NUL character", "remove that character")
    undone = undone_guard(name)
    if undone is not None:
        raise usage(f"`--env {name}` is refused", undone, "use a configuration file or an option of the program")
    return name, value
