"""The jq language and that of yq: a program only transforms its input, unless it calls an external function."""

import re

from policy.languages.language_result import HARMLESS, Reading, unknown_reading

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_WORD = re.compile(r"(?<![.$@\w])[A-Za-z_]\w*")
# fmt: off
_EXTERNAL_FUNCTIONS = frozenset((
    "import", "include", "load", "load_str", "load_xml", "load_props", "load_base64", "system", "exec", "eval",
    "input_filename", "modulemeta", "get_search_list", "getenv", "strload", "envsubst",
))
# fmt: on


def read_jq(program: str) -> Reading:
    """Judge one jq or yq program. A call of an external function makes the result unknown."""
    # An interpolation `\(..)` inside a string is code, so a string with an interpolation is searched as code.
    code = _STRING.sub(lambda found: found[0] if "\\(" in found[0] else '""', program)
    for word in _WORD.findall(code):
        if word in _EXTERNAL_FUNCTIONS:
            return unknown_reading(f"`{word}` may access more than the input")
    return HARMLESS
