"""The kind of secret that a path contains, as text for a person. It decides nothing."""

import re
from functools import cache

from policy.model.backup_names import originals

DEFAULT = "a private key or credential store"

_HISTORY = r"\.\w*_history|\.zhistory|\.history|\.histfile|\.lesshst|\.viminfo|shada|atuin|\.zsh_sessions"
_BROWSERS = (
    r"\.mozilla|\.thunderbird|\.librewolf|\.waterfox|google-chrome[^/]*|chromium[^/]*|BraveSoftware|microsoft-edge[^/]*"
    r"|vivaldi[^/]*|opera[^/]*|firefox|thunderbird|Safari|Cookies|evolution|epiphany|qutebrowser"
)
_MANAGERS = (
    r"keyrings|kwalletd|Keychains|\.password-store|gopass|1Password[^/]*|Bitwarden[^/]*|KeePass[^/]*|keepassxc"
    r"|rbw|lpass"
)
# In this order: the first that fits the end of a path, or a name on it, says what it is.
_KINDS = (
    (r"/(?:\.env(?:\..*)?|[^/]*\.env)\Z", "an environment file that may hold passwords"),
    (r"/(?:id_[^/]+|ssh_host_[^/]+_key|[^/]+\.(?:pem|key|p8|ppk|agekey))\Z", "a private key"),
    (r"/[^/]+\.(?:p12|pfx|keystore|jks|jceks|bcfks|keytab)\Z", "a store of private keys"),
    (r"/\.(?:ssh|gnupg)(?:/|\Z)", "where private keys and logins are kept"),
    (r"/(?:g?shadow[^/]*|master\.passwd|opasswd)\Z", "the password file of the machine"),
    (rf"/(?:{_HISTORY})(?:/|\Z)", "a history of what was typed"),
    (rf"/(?:{_MANAGERS})(?:/|\Z)|\.kdbx\Z", "a store of passwords"),
    (rf"/(?:{_BROWSERS})(?:/|\Z)", "saved sessions and passwords of a browser or mail program"),
    (r"\A/dev/(?:mem|kmem|port)\Z|\A/proc/.*(?:/mem|kcore)\Z", "memory of other programs"),
    (r"\A/proc/.*/environ\Z", "the environment of another program"),
    (r"\A/dev/", "a whole disk"),
    (r"\A(?:/var)?/run/(?:docker|podman|containerd|crio)", "control of containers that is as good as root"),
    (r"/(?:\.config|\.cache|state)/ringfence(?:/|\Z)", "what ringfence itself keeps"),
)


def secret_kind(path: str) -> str:
    """Return the kind of the secret at `path` ("a private key"), or a general phrase if the kind is unknown."""
    full = path if path.startswith("/") else f"/{path.removeprefix('~/')}"
    folder, _, name = full.rpartition("/")
    likely = (full, *(f"{folder}/{each}" for each in originals(name)))
    return next((words for each in likely for pattern, words in _compiled() if pattern.search(each)), DEFAULT)


@cache
def _compiled() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the compiled patterns. They are compiled at the first secret, because compiling takes longer than a
    decision.
    """
    return tuple((re.compile(pattern, re.IGNORECASE), words) for pattern, words in _KINDS)
