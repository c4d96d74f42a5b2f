"""The command lines of code forges: the host that they contact, and the changes by a call of their API."""

from policy.interpreter.command_call import Call
from policy.interpreter.judge_command import judge
from policy.interpreter.operand_roles import connect
from policy.model.abstract_word import literal
from policy.model.host_words import endpoint
from policy.model.tier import Tier

_HOSTS = {"gh": "api.github.com", "hub": "api.github.com", "glab": "gitlab.com"}
_FIELDS = frozenset(["-f", "-F", "--field", "--raw-field", "--input", "--form"])
_SHORTEST = 3  # HOST/OWNER/REPOSITORY


def forge(call: Call) -> None:
    """Judge `gh` and `glab`: report the host of the forge for every command that contacts it."""
    judge(call)
    if call.quiet or call.rule.tier is Tier.READ:
        return
    if call.label.endswith(" api"):
        _api(call)
    if call.rule.tier is Tier.NETWORK and not call.hosts:
        _connect(call)


def _connect(call: Call) -> None:
    call.hosts += 1
    value = call.flags.get("--hostname") or call.flags.get("-R") or call.flags.get("--repo")
    if value is None:
        call.connects(_HOSTS.get(call.label.partition(" ")[0], ""))
        return
    parts = (value.text or "").split("://")[-1].split("/")
    named = value.text is not None and ("--hostname" in call.flags or len(parts) >= _SHORTEST)
    own = value.text is not None and not named
    host = endpoint(parts[0]) if named else _HOSTS.get(call.label.partition(" ")[0], "") if own else ""
    call.connects(host or "", value)


def _api(call: Call) -> None:
    """Judge a call of the API: a method, or a field to send, makes it more than a read."""
    given = {name: value for name, value in call.flags.items() if name in ("-X", "--method")}
    methods = {(value.text or "?").upper() if value is not None else "?" for value in given.values()}
    sends = bool(_FIELDS & set(call.flags)) and not methods
    if methods - {"GET", "HEAD"} or sends:
        call.add_fact(Tier.DANGEROUS, "changes what is on the forge, with your login")
    for word in call.words:
        for text in word.texts:
            if "://" in text and text[:1] != "-":
                connect(call, literal(text, word.span))
