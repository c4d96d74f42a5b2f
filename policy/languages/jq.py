"""The jq language (and yq's): it transforms its input; only loading other files reaches further."""

import re

from policy.languages.language_result import HARMLESS, Reading, unknown

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WORD = re.compile(r"(?<![.$@\w])[A-Za-z_]\w*")
# fmt: off
_REACHES = frozenset((
    "import", "include", "load", "load_str", "load_xml", "load_props", "load_base64", "system", "exec", "eval",
    "input_filename", "modulemeta", "get_search_list", "getenv", "strload", "envsubst",
))
# fmt: on


def read_jq(program: str) -> Reading:
    """Judge one jq or yq program."""
    # An interpolation `\(..)` inside a string is code, so text in strings counts when it holds one.
    code = _STRING.sub(lambda found: found[0] if "\\(" in found[0] else '""', program)
    for word in _WORD.findall(code):
        if word in _REACHES:
            return unknown(f"`{word}` may access more than the input")
    return HARMLESS
