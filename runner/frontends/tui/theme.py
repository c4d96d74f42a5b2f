"""The themes: colours by their meaning, for dark and light terminals and for terminals without colours.

Only the sixteen colours of the terminal are used, because users choose them to be readable; only badges have a
background. Every fact that a colour shows is also shown by a word, a sign or a position.
"""

from collections.abc import Callable, Hashable, Mapping

from prompt_toolkit.styles import Attrs, StyleTransformation

from policy.model.frozen import dataclass
from policy.model.tier import Tier
from runner.frontends.wording import BADGE_COLOURS


@dataclass(frozen=True, slots=True)
class Theme:
    """Styles as prompt_toolkit writes them."""

    name: str
    dim: str = "dim"
    strong: str = "bold"
    prompt: str = "bold"
    good: str = "ansigreen"
    warn: str = "ansiyellow"
    bad: str = "bold ansired"
    badge_bad: str = "ansiwhite bg:ansired"
    badge_odd: str = "ansiblack bg:ansiyellow"
    heading: str = "bold ansicyan"
    link: str = "underline"
    inline: str = "ansicyan"  # `code` in a sentence
    added: str = "ansigreen"
    removed: str = "ansired"
    hunk: str = "ansicyan"
    keyword: str = "ansimagenta"
    string: str = "ansigreen"
    number: str = "ansicyan"
    comment: str = "dim italic"
    name_style: str = "ansiblue"  # functions, classes, keys

    def badge(self, tier: Tier) -> str:
        """Return the style of a tier's badge."""
        if self.name == "plain":
            return "reverse"
        text, ground = BADGE_COLOURS[tier]
        return f"ansi{text} bg:ansi{ground}"


# Blue is hard to read on black, yellow and cyan on white.
DARK = Theme("dark", name_style="ansibrightblue")
LIGHT = Theme(
    "light", warn="ansimagenta", heading="bold ansiblue", inline="ansiblue", hunk="ansiblue", number="ansiblue"
)
PLAIN = Theme(
    "plain", good="", warn="bold", bad="bold", badge_bad="reverse", badge_odd="reverse", heading="bold", inline="",
    added="", removed="", hunk="dim", keyword="", string="", number="", comment="", name_style="",
)  # fmt: skip


def theme_for(environ: Mapping[str, str], wanted: object = "auto", *, light: bool | None = None) -> Theme:
    """Return the theme for `wanted`: auto, dark, light or none.

    With NO_COLOR (no-color.org), the theme has no colours, whatever is wanted. With auto, the theme depends on the
    terminal's own background (`light`), else on COLORFGBG (rxvt(1); Konsole and others set it too), else it is dark.
    """
    named = {"dark": DARK, "light": LIGHT, "none": PLAIN}
    if environ.get("NO_COLOR"):
        return PLAIN
    if isinstance(wanted, str) and wanted in named:
        return named[wanted]
    if light is None:
        light = environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    return LIGHT if light else DARK


_ON_LIGHT = {"ansicyan": "ansiblue", "ansiyellow": "ansimagenta"}  # cyan and yellow are unreadable on white


class Shades(StyleTransformation):
    """The transformation of styles for the theme that `theme` returns at each drawing."""

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
