"""The keys of a `[[credential]]`, for the table of all settings."""

from collections.abc import Mapping

from policy.toml.schema import ValueType

# fmt: off
KEYS: Mapping[str, ValueType] = {
    "name":      ValueType.TEXT,
    "hosts":     ValueType.TEXTS,
    "header":    ValueType.TEXT,
    "basic":     ValueType.TEXT,
    "env":       ValueType.TEXT,
    "keyring":   ValueType.TEXT,
    "helper":    ValueType.TEXTS,
    "use":       ValueType.TEXTS,
    "intercept": ValueType.SWITCH,
    "plain":     ValueType.SWITCH,
}
EXAMPLE = '''name   = "forge"
hosts  = ["GET,POST git.example.com/team/"]
header = "Authorization: Bearer {secret}"
env    = "FORGE_TOKEN"'''
# fmt: on
MOST = 100  # of one file

# fmt: off
SAYS: Mapping[str, str] = {
    "name":      "how it is listed; a later row of the same name takes its place",
    "hosts":     "the requests that get it: `[METHOD,.. ]HOST[:PORT][/PATH/]`",
    "header":    "the header, with `{secret}` in its value",
    "basic":     "instead of `header`: the user name of Basic, whose password the secret is",
    "env":       "the secret is in this variable of the process that starts the agent",
    "keyring":   "the secret is in the keyring, kept by `agent auth login NAME`",
    "helper":    "a program and its words that print the secret on one line",
    "use":       'whom to tell: "git", "gh", "pip=ADDRESS", "npm=ADDRESS", "VARIABLE=ADDRESS"; without it, Git',
    "intercept": "open the TLS of its hosts, by a certificate that only this session's commands believe",
    "plain":     "its hosts speak plain HTTP, in which everybody on the way can read the secret",
}
# fmt: on
