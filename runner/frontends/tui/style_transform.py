"""The colours of what is live, by the theme: each part names the one it has on a dark background."""

from collections.abc import Callable, Hashable

from prompt_toolkit.styles import Attrs, StyleTransformation

from runner.frontends.tui.theme import LIGHT, PLAIN, Theme

_ON_LIGHT = {"ansicyan": "ansiblue", "ansiyellow": "ansimagenta"}  # neither can be read on white


class Shades(StyleTransformation):
    """What `theme` answers holds for the next drawing."""

    def __init__(self, theme: Callable[[], Theme | None]) -> None:
        self._theme = theme

    def transform_attrs(self, attrs: Attrs) -> Attrs:
        theme = self._theme()
        if theme is PLAIN:
            return attrs._replace(color="", bgcolor="", reverse=attrs.reverse or bool(attrs.bgcolor))
        if theme is LIGHT and not attrs.bgcolor and attrs.color:
            return attrs._replace(color=_ON_LIGHT.get(attrs.color, attrs.color))
        return attrs

    def invalidation_hash(self) -> Hashable:
        theme = self._theme()
        return theme.name if theme is not None else ""
