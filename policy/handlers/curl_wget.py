"""Handlers of `curl` and `wget`: the files they send or write, also those named by a part of an argument."""

import re

from policy.interpreter.command_call import Call
from policy.interpreter.judge_command import judge
from policy.model.abstract_word import AbstractWord, literal
from policy.model.assessment import Consequence
from policy.model.frozen import replace
from policy.model.host_words import ADDRESS
from policy.rules.rule import Role

_GLOB = re.compile(r"[\[{]")
_PATTERN_NUMBER = re.compile(r"#[0-9]")
_OUTPUT_FILE = re.compile(r"%output\{(?:>>)?([^}]*)\}")
_FIELD_NAME = re.compile(r"[^=]*=")
_HEADERS = re.compile(r"\s*headers=[@<](.*)", re.DOTALL)
# Flags of wget that contain `-H`, which allows other hosts; `-nH` is another flag.
_SPAN_HOSTS = re.compile(r"-[bcdEFkKLmNprSvqx46]*H[A-Za-z0-9]*")
_TREE_FLAGS = frozenset(["-r", "--recursive", "-m", "--mirror", "-x", "--force-directories", "-p", "--page-requisites"])


def curl(call: Call) -> None:
    """Judge `curl`. Sources: curl(1) for `--upload-file`, `--form`, `--write-out`, `--output`, `--cert`,
    `--remote-name`.
    """
    shape = call.parse()
    judge(call)
    if call.quiet or shape.trouble:
        return
    addresses = [*shape.operands, *(value for flag, value in shape.flags if flag.name == "--url" and value)]
    globs = any(word.text is None or _GLOB.search(word.text) for word in addresses)
    named_by_address, folder = False, ""
    for flag, value in shape.flags:
        name, text = flag.name, value.text if value is not None else None
        named_by_address = named_by_address or name in ("-O", "--remote-name", "--remote-name-all")
        if value is None or text is None:
            continue
        if name in ("-T", "--upload-file") and _GLOB.search(text):
            call.unknown("`curl` expands a pattern in the name of a file to send", value)
        elif name in ("-F", "--form"):
            _judge_form(call, text, value)
        elif name in ("-w", "--write-out"):
            if text.startswith("@") and text != "@-":
                call.access_path(Role.READ, literal(text[1:], value.span))
            for path in _OUTPUT_FILE.findall(text):
                call.access_path(Role.WRITE, literal(path, value.span))
        elif name in ("-o", "--output") and _PATTERN_NUMBER.search(text) and globs:
            call.unknown("writes files whose names come from the address", value, Consequence.WRITES_PATH)
        elif name in ("-E", "--cert") and ":" in text:
            call.access_path(Role.READ, literal(text.partition(":")[0], value.span))  # the part after `:` is a password
        elif name == "--output-dir":
            folder = text
    if named_by_address:
        _report_saved_files(call, addresses, folder)


def wget(call: Call) -> None:
    """Judge `wget`. Without a given name, the files that it writes are named after the addresses."""
    shape = call.parse()
    flags = {flag.name: value for flag, value in shape.flags}
    foreground = not flags.keys() & {"-b", "--background"}
    names_output = bool(flags.keys() & {"-O", "--output-document", "--spider"}) and foreground
    if names_output and not shape.trouble:
        call.rule = replace(call.rule, changes="")
    judge(call)
    if any(_SPAN_HOSTS.fullmatch(text) for word in call.words for text in word.texts):
        call.connects("")
    if call.quiet or shape.trouble or names_output:
        return
    folder = flags.get("-P") or flags.get("--directory-prefix")
    if not flags.keys() & _TREE_FLAGS:
        _report_saved_files(call, shape.operands, folder.text or "" if folder is not None else "")


def _judge_form(call: Call, text: str, word: AbstractWord) -> None:
    """Judge `name=@file,file;type=..`, `name=<file` and `name=text;headers=@file`: each of these files is sent."""
    match = _FIELD_NAME.match(text)
    value = text[match.end() :] if match else ""
    files = value.startswith(("@", "<"))
    if '"' in value and (files or "headers" in value):
        call.unknown("`curl --form` sends a file whose quoted name is not parsed", word)
        return
    for index, part in enumerate(value.split(";")):
        headers = _HEADERS.match(part)
        names = [headers[1]] if headers else part[1:].split(",") if files and not index else part.split(",")[1:]
        if headers or files:
            for name in filter(None, names):
                call.access_path(Role.READ, literal(name.lstrip("@<"), word.span))


def _report_saved_files(call: Call, addresses: list[AbstractWord], folder: str) -> None:
    """Report a write of each file named after the last path segment of an address, in `folder` (empty: the current
    folder).
    """
    for word in addresses:
        if word.text is None:
            continue
        path = re.split(r"[?#]", word.text, maxsplit=1)[0]
        rest = path.partition("://")[2] if ADDRESS.match(path) and "://" in path else path
        name = rest.partition("/")[2].rpartition("/")[2]
        if name and not _GLOB.search(name):
            call.access_path(Role.WRITE, literal(f"{folder.rstrip('/')}/{name}" if folder else name, word.span))
