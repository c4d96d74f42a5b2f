"""The sqlite3 shell: an allowlist of its own commands; SQL is read by `policy.handlers.sql`."""

import re

from policy.handlers.sql import looks_only
from policy.interpreter.command_call import Call
from policy.interpreter.options import parse
from policy.model.abstract_word import AbstractWord
from policy.model.tier import Tier
from policy.rules.rule import Role

_DOT = re.compile(
    r"\.(?:tables?|schema|indexes|indices|databases|dbinfo|fullschema|dump|headers?|mode|width|separator|nullvalue|timer|show"
    r"|help|quit|exit|stats|eqp|explain|sha3sum|print|echo|bail|changes|limit|version|dbtotxt)(?: [A-Za-z0-9_ .,%*-]*)?"
)


def sqlite(call: Call) -> None:
    """Judge `sqlite3 [FLAGS] FILE [TEXT]..`: the texts are SQL or dot commands; without a text it runs its standard
    input.
    """
    if len(call.words) == 1 and call.words[0].text in call.rule.alone:
        call.add_fact(Tier.READ, "only prints a text", flag=call.words[0].text or "")
        call.quiet = True
        return
    shape = parse(call.rule, call.label, call.words)
    if shape.trouble:
        call.unknown(shape.trouble, shape.where)
        return
    file, *texts = shape.operands or [AbstractWord()]
    commands = [value for flag, value in shape.flags if flag.name in ("-cmd", "--cmd") and value is not None]
    if file.text and file.text != ":memory:":
        if file.text.startswith("file:"):
            call.unknown(f"`{call.label}` with a database named by a URI", file)
        call.access_path(Role.READ, file)
    safe = bool(texts) and all(word.text is not None and _harmless(word.text) for word in (*texts, *commands))
    if safe:
        call.add_rule_fact(Tier.READ)
    else:
        call.runs("may change its database, or run programs", consequence=None)


def _harmless(text: str) -> bool:
    if text.lstrip().startswith("."):
        return _DOT.fullmatch(text) is not None
    return "\n." not in text and looks_only(text)
