"""Insertion of the user's environment variables into the settings of a tool server.

`$NAME`, `${NAME}` and `${NAME:-default}` name a variable of the user's environment, `${workspaceFolder}` the workspace,
and `$$` is a dollar sign. `args`, `command`, `cwd` and `url` know only the forms in braces; `$${` is `${` there.
"""

import re
from collections.abc import Iterable, Mapping

from policy.model.frozen import dataclass
from policy.model.verdict import Problem, ProblemError
from runner.config.validators import Fault
from runner.secrets.redactor import key_spans
from runner.secrets.secret import SHORTEST, Secret, names_secret

WORKSPACE = "workspaceFolder"
_NAMED = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))", re.ASCII)
_BRACED = re.compile(r"\$(?:\$(?=\{)|\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\})", re.ASCII)
_OTHER = re.compile(r"\$\{[^}]*\}")  # a form of another program, such as `${input:key}`
_MORE_SECRETS = re.compile(r"SESSION|AUTH|DSN|WEBHOOK|APIKEY|LOGIN|CERT|PRIVATE", re.IGNORECASE)
_SCHEMES = ("bearer", "basic", "token")  # of the header `Authorization`
_CODED = re.compile(r"[A-Za-z0-9_+/=.~-]{20,}", re.ASCII)  # a run of characters that may be a key


class VariableError(ProblemError):
    """An error for a variable that cannot be inserted. `problem` never quotes the value."""

    def __init__(self, what: str, fault: Fault) -> None:
        super().__init__(Problem(what, *fault))
        self.fault = fault


@dataclass(frozen=True, slots=True)
class UserVariables:
    """The variables that one server may use.

    Attributes:
        environ: The environment of the user.
        workspace: The absolute path of the workspace.
        repository: True if a file of the repository chose the server. Such a server gets no secrets.
        inserts: False to leave every text as it is, for a server that is not started.
    """

    environ: Mapping[str, str]
    workspace: str
    repository: bool
    inserts: bool = True

    def value(self, text: str) -> str:
        """Return the value of a variable or header with the user's variables inserted. Raises VariableError."""
        return self._inserted(text, _NAMED, secrets=not self.repository)

    def word(self, text: str) -> str:
        """Return a word of the command line, or an address, with the user's variables inserted. Raises VariableError.

        No secret is inserted: other users see the command lines of all processes, and logs contain addresses.
        """
        return self._inserted(text, _BRACED, secrets=False)

    def _inserted(self, text: str, forms: re.Pattern[str], *, secrets: bool) -> str:
        if not self.inserts:
            return text
        plain = forms.sub(lambda found: "" if found[0] != "$$" else "$ ", text)
        if other := _OTHER.search(plain):
            raise VariableError(
                f"`{other[0]}` cannot be inserted",
                ("only `${NAME}`, `${NAME:-default}` and `${workspaceFolder}` are known", "write one of these"),
            )
        return forms.sub(lambda found: self._one(found, secrets=secrets), text)

    def _one(self, found: re.Match[str], *, secrets: bool) -> str:
        groups = (*found.groups(), None)[:3]
        name, default = groups[0] or groups[2], groups[1]
        if name is None:
            return "$"
        if name == WORKSPACE:
            return self.workspace
        value = self.environ.get(name)
        if value is not None and not secrets and may_be_secret(name, value):
            raise VariableError(f"the variable `{name}` cannot be inserted", self._refusal())
        if not value:  # as in a shell, `:-` also replaces an empty value
            value = default if default is not None else value
        if value is None:
            why, fix = "your environment does not contain it", f"set it, or write `${{{name}:-default}}`"
            raise VariableError(f"the variable `{name}` cannot be inserted", (why, fix))
        if "\0" in value or "\n" in value or "\r" in value:
            why, fix = "its value has more than one line", "use another variable"
            raise VariableError(f"the variable `{name}` cannot be inserted", (why, fix))
        return value

    def _refusal(self) -> Fault:
        if self.repository:
            return (
                "it may contain a secret, and a file of the repository chose the server",
                "copy the server into your own configuration with `agent mcp import`, if it should get the secret",
            )
        return (
            "it may contain a secret, and command lines and addresses are not confidential",
            "insert it into `env` or `headers`",
        )


def may_be_secret(name: str, value: str) -> bool:
    """Return True if a variable may contain a secret, by its name or by its value."""
    if names_secret(name) or _MORE_SECRETS.search(name) or next(key_spans(value), None):
        return True
    if "://" in value:
        return True  # addresses contain passwords, and those of web hooks are secret as a whole
    runs = (each for each in _CODED.findall(value) if not value.startswith(("/", "~")))
    return len(value) >= SHORTEST and any(_mixed(each) for each in runs)


def _mixed(text: str) -> bool:
    """Return True if a text of letters and digits looks random: names of places rarely contain several digits."""
    return sum(char.isdigit() for char in text) >= 3 and any(char.isalpha() for char in text)


def register_values(pairs: Iterable[tuple[str, str]]) -> None:
    """Register the values of variables and headers that are named like secrets, so that they are masked in every text,
    wherever they come from.
    """
    for name, value in pairs:
        if not names_secret(name.replace("-", "_")) and name.lower() not in ("authorization", "cookie"):
            continue
        kind, blank, rest = value.partition(" ")
        plain = (rest if blank and kind.lower() in _SCHEMES else value).strip()
        if len(plain) >= SHORTEST and not plain.startswith(("/", "~")):
            Secret(plain)
