"""Writes the table of keys into docs/reference/configuration.md (`make docs`); with `--print` it only prints."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner.config.schema import KEYS, LISTS, Key, Widens
from runner.config.show import packaged_values
from runner.config.template import example_of

PAGE = Path(__file__).resolve().parent / "reference" / "configuration.md"
BEGIN, END = "<!-- keys: written by `make docs` -->\n", "<!-- end of the keys -->\n"
_MAY = {Widens.YOURS: "nothing, ever", Widens.NEVER: "nothing", Widens.TIGHTEN: "tighten", Widens.ANYTHING: "anything"}


def page(text: str) -> str:
    """The page with its table made anew."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{_table()}{END}{rest.partition(END)[2]}"


def _table() -> str:
    rows = ["| key | meaning | holds, or an example | a repository may | variable |", "| --- | --- | --- | --- | --- |"]
    rows += [_row(key) for key in KEYS]
    rows += [
        f"| `[[{each.name}]]` | {each.help} | {', '.join(f'`{key}`' for key in each.keys)} | {_MAY[each.widens]} | |"
        for each in LISTS
    ]
    return "\n".join(rows) + "\n"


def _row(key: Key) -> str:
    name = ".".join("NAME" if word == "*" else word for word in key.path)
    choices = f": {', '.join(f'`{each}`' for each in key.choices)}" if key.choices else ""
    value = packaged_values().get(key.path, key.default)
    said = f"`{example_of(key, packaged_values())}`"
    said = said if value is not None and not key.adds else f"such as {said}"
    variable = f"`{key.variable}`" if key.variable else ""
    return f"| `{name}` | {key.help}{choices} | {said} | {_MAY[key.widens]} | {variable} |"


if __name__ == "__main__":
    made = page(PAGE.read_text("utf-8"))
    if "--print" in sys.argv:
        print(made, end="")
    else:
        PAGE.write_text(made, "utf-8")
