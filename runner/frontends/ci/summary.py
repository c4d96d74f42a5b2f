"""The summary page of a run for a job, as Markdown: actions, denials, changed files, limits and cost.

THREAT: nearly every word of the page was written by a model or a repository. Such text is inside `<code>`, where every
character with a meaning in Markdown or HTML becomes an entity, or inside `<pre>`, where Markdown has no meaning and the
characters of HTML become entities. So no text is a link, an image, a mention, a heading, a cell or a tag.
"""

import html
import re
from collections.abc import Iterable, Sequence

from policy.model.frozen import dataclass
from runner.audit.decisions import DecisionTrail
from runner.audit.fields import items, mapping, number
from runner.frontends.ci.result import CiResult, OutputContent
from runner.text.phrases import many
from runner.text.sanitize import one_line, visible

LONGEST = 900_000  # bytes of a page; SOURCE: GitHub accepts 1 MiB of one step
_ROWS = 100  # rows of a table
_CELL = 300  # characters of a table cell
_MESSAGE = 20_000  # characters of the model's last message
_SIGN = re.compile(r"[^A-Za-z0-9 \u00a0-\U0010ffff]")

_ENDS = {
    0: "done",
    1: "failed",
    2: "the run could not begin",
    3: "done, and actions were denied",
    4: "no sufficient sandbox, so nothing was executed",
    5: "a limit ended the run",
    130: "stopped by a signal",
}


@dataclass(frozen=True, slots=True)
class Page:
    """The summary page of one run."""

    result: CiResult
    content: OutputContent

    def text(self) -> str:
        first, last = self._head(), [*self._used(), *self._reading()]
        middle = [*self._message(), *self._denied(), *self._changed(), *self._actions()]
        page = ("\n".join([*first, *middle, *last]) + "\n").encode("utf-8", "backslashreplace")
        if len(page) > LONGEST:
            rest = [*first, *last, "The other sections are too long for a summary."]
            page = ("\n".join(rest) + "\n").encode("utf-8", "backslashreplace")
        return page.decode()

    def _head(self) -> list[str]:
        result = self.result
        lost = sum(each.mattered for each in result.denied)
        sandbox = self.content.started.enforcement if self.content.started is not None else None
        patch = f", in the patch {result.patch}" if result.patch else ""
        rows = [
            ("result", f"exit {result.exit}: {_ENDS.get(result.exit, 'failed')}"),
            ("reason", result.reason),
            *((("why", self.content.why),) if self.content.why else ()),
            *((("limit", result.limit),) if result.limit else ()),
            ("denied", f"{len(result.denied)}, of which {lost} mattered" if result.denied else "nothing"),
            ("changed", many(len(result.changed), "file") + patch),
            ("model", self.content.model),
            ("mode", f"{self.content.mode}, unattended"),
            *((("sandbox", f"{sandbox.backend} {sandbox.level.value}"),) if sandbox is not None else ()),
        ]
        return ["## ringfence", "", *_table(("", ""), [(name, code(text)) for name, text in rows]), ""]

    def _message(self) -> list[str]:
        words = self.result.text.strip()
        if not words:
            return []
        if len(words) > _MESSAGE:
            words = f"{words[:_MESSAGE]}…"
        return ["### Last message of the model", "", f"<pre>{html.escape(visible(words, prose=True))}</pre>", ""]

    def _denied(self) -> list[str]:
        refused = self.result.denied
        if not refused:
            return []
        rows: list[tuple[str, ...]] = []
        for each in sorted(refused, key=lambda each: not each.mattered)[:_ROWS]:
            words = map(code, (each.tier, each.action, each.why, each.rule))
            rows.append((str(each.record), "yes" if each.mattered else "no", *words))
        table = [*_table(("record", "mattered", "tier", "action", "why", "rule"), rows), *_more(len(refused))]
        about = "A denial mattered unless the same action was done later in an allowed way."
        return ["### Denied", "", about, "", *table, ""]

    def _changed(self) -> list[str]:
        changed = self.result.changed
        notes = [f"- {code(note)}" for note in self.content.notes[:_ROWS]]
        if not changed:
            return ["### Notes", "", *notes, ""] if notes else []
        rows = [(each.how, code(each.path)) for each in changed[:_ROWS]]
        table = [*_table(("how", "path"), rows), *_more(len(changed))]
        return ["### Changed files", "", *table, "", *notes, *([""] if notes else [])]

    def _actions(self) -> list[str]:
        deeds = self.content.story.deeds
        if not deeds:
            return []
        rows = [
            (str(deed.record.id), _verdict(deed), code(deed.tier), code(deed.action), _end(deed))
            for deed in deeds[:_ROWS]
        ]
        table = [*_table(("record", "verdict", "tier", "action", "end"), rows), *_more(len(deeds))]
        return [f"<details><summary>Every action ({len(deeds)})</summary>", "", *table, "", "</details>", ""]

    def _used(self) -> list[str]:
        result, bounds = self.result, self.content.bounds
        usage = result.usage
        tokens = usage.input + usage.output + usage.cache_read + usage.cache_write
        sizes = (mapping(deed.outcome.get("bytes")).values() for deed in self.content.story.deeds)
        printed = sum(int(number(size) or 0) for streams in sizes for size in streams)
        rows = (
            ("turns", f"{result.turns}", f"{bounds.turns}"),
            ("tokens", f"{tokens:,}", _bound(bounds.tokens, "{:,}")),
            ("money", "unknown" if result.cost is None else f"{result.cost:.4f}", _bound(bounds.money, "{:g}")),
            ("time", f"{result.seconds:.1f} s", _bound(bounds.seconds, "{:g} s")),
            ("output of commands", f"{printed:,} bytes", _bound(bounds.output, "{:,} bytes")),
            ("denials", f"{len(result.denied)}", f"{bounds.total}, or {bounds.row} in a row"),
        )
        return ["### Budgets", "", *_table(("", "used", "at most"), rows), ""]

    def _reading(self) -> list[str]:
        if not self.result.session:
            return []
        named = code(f"agent audit list --session {self.result.session[:8]}")
        about = f"On the machine of the job: {named}, and `agent audit show RECORD` for one record."
        lines = ["### The audit log", "", about]
        if self.result.head:
            expect = f"agent audit verify --expect {self.result.head}"
            lines += ["", f"To verify later that no record was changed or removed: {code(expect)}."]
        return lines


def code(text: str) -> str:
    """Return untrusted text as one line of code for a table cell, cut to `_CELL` characters."""
    shown = one_line(text, _CELL)
    return f"<code>{_SIGN.sub(lambda found: f'&#{ord(found[0])};', shown)}</code>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    head = "".join(f" {each} |" if each else " |" for each in heads)
    return [f"|{head}", *(f"| {' | '.join(row)} |" for row in (["---"] * len(heads), *rows))]


def _more(count: int) -> list[str]:
    return ["", f"… and {count - _ROWS} more, in the log."] if count > _ROWS else []


def _bound(value: float | None, form: str) -> str:
    return "no limit" if value is None else form.format(value)


def _verdict(deed: DecisionTrail) -> str:
    if deed.record.kind == "refused":
        return "malformed"
    return "denied" if deed.denied else "allowed"


def _end(deed: DecisionTrail) -> str:
    if deed.finished is None:
        return ""
    body = deed.finished.body
    ended = body.get("ended_by")
    contained = len(items(body.get("violations")))
    words = [f"exit {number(body.get('status'))}"]
    words += [f"ended by {code(str(ended))}"] if ended else []
    words += [f"{contained} contained"] if contained else []
    return ", ".join(words)
