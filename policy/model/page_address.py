"""The address of a web page in one canonical form: what is judged, shown and sent is the same text."""

from urllib.parse import quote

from policy.model.host_rule import authority, host_rule
from policy.model.verdict import Problem

LONGEST = 4096  # characters of an address
# RFC 3986: characters that may stand in a path and in a query; `%` begins a byte that is encoded already.
_PATH = "/%:@!$&'()*+,;=~-._"
_QUERY = _PATH + "?"
_USUAL = {"http": 80, "https": 443}
_NOT = "this is not the address of a web page"


def page_address(text: str) -> str | Problem:
    """Return the address of a page in canonical form, without its fragment, or the Problem of an address that programs
    could read in different ways. A Problem never repeats a user name or a password.

    Scheme and host are in lower case, a usual port is left out, and letters of other languages in the path and in the
    query are encoded as UTF-8.
    """
    text = text.strip()
    if len(text) > LONGEST:
        return Problem(_NOT, f"it has more than {LONGEST:,} characters", "use a shorter address")
    if not text.isprintable() or any(char.isspace() for char in text) or "\\" in text:
        return Problem(_NOT, "it has a blank, a control character or a backslash", "encode such characters, as `%20`")
    scheme, found, rest = text.partition("://")
    scheme = scheme.lower()
    if not found or scheme not in _USUAL:
        return Problem(
            _NOT, "only addresses that begin with `https://` or `http://` are fetched", "use such an address"
        )
    rest = rest.partition("#")[0]
    end = min((at for mark in "/?" if (at := rest.find(mark)) >= 0), default=len(rest))
    site, rest = rest[:end], rest[end:]
    if "@" in site:
        why = "it has a user name or a password in it, and no page is fetched with those"
        return Problem(_NOT, why, "leave out what is before the `@`")
    if not site.isascii():
        rule = host_rule(site)
        ascii_form = f": `{rule}`" if not isinstance(rule, Problem) else " (`xn--...`)"
        return Problem(_NOT, "its host has letters that may look like others", f"write its ASCII form{ascii_form}")
    named = authority(site.removesuffix(":"))
    if named is None:
        return Problem(_NOT, "its host is not written in the usual form", "write it like `https://example.org/page`")
    host, port = named
    path, mark, query = rest.partition("?")
    site = host if port is None or port == _USUAL[scheme] else f"{host}:{port}"
    address = f"{scheme}://{site}{quote(path, _PATH) or '/'}{mark}{quote(query, _QUERY)}"
    if len(address) > LONGEST:
        return Problem(_NOT, f"it has more than {LONGEST:,} characters", "use a shorter address")
    return address
