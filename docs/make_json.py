"""Write docs/reference/json.md, the page about the JSON of every command (`make docs`). With `--print`, print it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner.cli.json_output import OUTPUTS, Form, JsonOutput

PAGE = Path(__file__).resolve().parent / "reference" / "json.md"
HEAD = """# JSON of every command

Generated from `runner/cli/json_output.py` by `make docs`; do not edit this page. A test runs every command and compares
its output with this page.

- A list is **lines**: one object per line, and no line for an empty list. One thing is **one object** on one line.
- The output is ASCII without blanks between its parts. Errors are texts on standard error.
- A **time** is ISO 8601 in UTC, such as `2026-03-04T05:06:09.750Z`. Durations are numbers of seconds.
- `verdict` is the verdict of the policy on an action: `allow`, `ask` or `deny`. `cell` is the entry of the permission
  matrix that decided: `tier`, `mode` and its `ruling`. The `ruling` is what the matrix alone says, and the `verdict`
  can differ from it, because rules, grants and answers of the user count too: the `ruling` is `ask` and the `verdict`
  is `allow` after the user approved. `tiers` are the tiers of an action, the highest first.
- `status` of a task of `agent batch` is not a verdict: `denied` means that the task was completed, and that a call was
  denied.
- `texts`, `numbers` and `objects` are lists. `?` marks a field that can be missing.
- **events** are those of a session: [embedding.md](../guide/embedding.md#events) lists them.

| command | form | contents | fields |
| --- | --- | --- | --- |
"""


def page() -> str:
    """Return the page."""
    return HEAD + "".join(_row(each) for each in sorted(OUTPUTS, key=lambda each: each.command))


def _row(output: JsonOutput) -> str:
    names = ", ".join(f"`agent {name}`" for name in (output.command, *output.also))
    fields = ", ".join(f"`{each.name}`{'?' * each.optional} {each.kind}" for each in output.fields)
    more = " ..." if output.open and output.form is not Form.EVENTS else ""
    return f"| {names} | {output.form} | {output.about} | {fields}{more} |\n"


if __name__ == "__main__":
    if "--print" in sys.argv:
        print(page(), end="")
    else:
        PAGE.write_text(page(), "utf-8")
