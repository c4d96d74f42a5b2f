"""Write the table of events into docs/guide/embedding.md (`make docs`). With `--print`, print the page instead."""

import dataclasses
import inspect
import re
import sys
import typing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner import events

PAGE = Path(__file__).resolve().parent / "guide" / "embedding.md"
BEGIN, END = "<!-- events: written by `make docs` -->\n", "<!-- end of the events -->\n"


def page(text: str) -> str:
    """Return the page with a new table."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{_table()}{END}{rest.partition(END)[2]}"


def _table() -> str:
    rows = ["| type | class | fields | meaning |", "| --- | --- | --- | --- |"]
    rows += [_row(event) for event in typing.get_args(events.Event)]
    return "\n".join(rows) + "\n"


def _row(event: type) -> str:
    fields = ", ".join(f"`{field.name}`" for field in dataclasses.fields(event) if not field.kw_only)
    meaning, _, attributes = (inspect.getdoc(event) or "").partition("Attributes:")
    meaning += re.sub(r"^    (\w+):", r"`\1`:", attributes, flags=re.M)
    meaning = re.sub(r"\s+", " ", meaning).strip().replace("|", "\\|")
    return f"| `{event.type}` | `{event.__name__}` | {fields} | {meaning} |"  # type: ignore[attr-defined]  # every event


if __name__ == "__main__":
    made = page(PAGE.read_text("utf-8"))
    if "--print" in sys.argv:
        print(made, end="")
    else:
        PAGE.write_text(made, "utf-8")
