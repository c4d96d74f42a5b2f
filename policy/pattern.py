"""`pattern`: a regular expression that is compiled when it is first asked, not when its module is imported.

A short command imports more than a hundred of them and asks some thirty; compiling is the dearest part of importing
a module that has many. For those that every command asks, `re.compile` says so better.
"""

import re

TYPE_CHECKING = False  # the name that type checkers know, without the import of `typing`
if TYPE_CHECKING:
    from re import compile as _compile

    pattern = _compile
else:

    def pattern(text, flags=0):
        """As `re.compile`; what is no regular expression is found out at the first use, so every one needs a test."""
        return _Later(text, flags)


class _Later:
    """Has the methods of a pattern as slots, which are empty until somebody looks for one of them."""

    __slots__ = ("_made", "findall", "finditer", "fullmatch", "match", "search", "split", "sub")

    def __init__(self, text: str, flags: int) -> None:
        self._made = (text, flags)

    def __getattr__(self, name: str) -> object:
        if name not in self.__slots__:
            raise AttributeError(name)
        made = re.compile(*self._made)
        for each in self.__slots__[1:]:
            setattr(self, each, getattr(made, each))
        return getattr(self, name)
