"""The transcript of a session: events drawn on a terminal, or as plain lines if there is no terminal.

THREAT: the model, files and commands choose most of this text. All of it passes `visible` and becomes rich Text, never
markup, so nothing in it can move the cursor, forge a badge, hide a part of a command, or colour itself.
"""

from typing import assert_never

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from policy.model.action import Action, EditFile, RunArgv, RunScript, WriteFile
from policy.model.profile import MAIN
from policy.model.tier import Ruling, Tier
from policy.model.verdict import Problem
from runner import events
from runner.event_values import PastRow
from runner.frontends import wording
from runner.frontends.plain.prose import Flow
from runner.gate.wording import action_words
from runner.text.sanitize import one_line, visible

WIDEST = 120  # long lines are hard to read on a wide screen
_LONGEST_NAME = 100  # characters of the name of another client

_DIFF = {"+": "green", "-": "red", "@": "cyan"}  # styles of lines by their first character
_WORD = {Ruling.ALLOW: ("allowed", "green"), Ruling.ASK: ("asks", "yellow"), Ruling.DENY: ("denied", "bold red")}


# Events that do not end the paragraph that the model is writing.
_LIVE = (
    events.ModelText | events.ModelThinking | events.PlanProposed | events.CommandOutput | events.CallBegun
    | events.ContextUsed | events.PickWanted | events.InputWanted
)  # fmt: skip


class Transcript:
    """The renderer of a transcript. It draws each event at once, except that a read-only call is drawn when it ends,
    because such calls run in parallel.

    Lines are wrapped, and lines of output are cut, to the width of a terminal. With another output, such as a file, no
    line is wrapped or cut. `wrap` is None for a check of the output, True for a terminal.
    """

    def __init__(self, console: Console, *, wrap: bool | None = None, recalls: bool = False, me: str = "") -> None:
        """`recalls` is True for a conversation, which shows the last exchanges of a session that it continues. `me` is
        the name of this client of a hosted session, or empty.
        """
        self._me = me
        self._console = console
        self._recalls = recalls
        self._wrap = console.file.isatty() if wrap is None else wrap
        self._cwd = ""
        self._actions: dict[str, tuple[str, Action | None]] = {}
        self._verdicts: dict[str, events.VerdictReached] = {}
        self._drawn: set[str] = set()
        self._open: set[str] = set()  # asked about or allowed, and not yet ended
        self._flow = Flow(console, lambda: self._width if self._wrap else None)
        self._encoding = console.encoding or "utf-8"
        fancy = self._encoding.lower().replace("-", "").startswith("utf")
        self._bar, self._end, self._cut = ("│", "└", "…") if fancy else ("|", "`", "...")

    @property
    def _width(self) -> int:
        """Return the number of used columns for the current width of the terminal."""
        return min(self._console.width, WIDEST)

    def __call__(self, event: events.Event) -> None:
        """Draw `event`."""
        if event.agent != MAIN:
            if words := wording.agent_event_words(event, self._cwd):
                self._flow.end()
                self._print(self._styled(self._fit(words), "dim"))
            return
        if not isinstance(event, _LIVE):
            self._flow.end()
        match event:
            case events.ModelText(text):
                self._flow.write(text)
            case events.ModelThinking():
                pass  # not shown
            case events.PlanProposed(call):  # a call of an earlier prompt may have the same key
                self._actions.pop(call, None)
            case events.CommandOutput() | events.CallBegun() | events.ContextUsed():
                pass  # the end of a call shows its output, folded
            case events.PickWanted() | events.InputWanted():
                pass  # the question itself is shown
            case events.SessionStarted():
                self._cwd = event.cwd
                self._labelled(wording.session_labels(event))
            case events.Resumed():
                for row in event.recent if self._recalls else ():
                    self._past(row, event.session)
                shown = self._recalls and bool(event.recent)
                self._labelled(wording.resumption_labels(event, shown=shown))
            case events.Prompted() | events.Steered():
                prompt = self._styled(f"> {wording.prompt_words(event).rstrip()}", "bold", prose=True)
                self._print(Text("\n").append_text(prompt))
            case events.ToolProposed(call, tool, action):
                self._actions[call] = (tool, action)
                self._drawn.discard(call)  # in a conversation, the keys of a later prompt start again
                self._verdicts.pop(call, None)
            case events.VerdictReached():
                self._verdicts[event.call] = event
                if event.verdict is Ruling.ALLOW:
                    self._open.add(event.call)
                if event.tiers != (Tier.READ,) and event.verdict is not Ruling.ASK:
                    self._header(event.call)
            case events.QuestionAsked():
                pass  # the approver shows the question
            case events.QuestionAnswered(call) if call not in self._actions:
                pass  # the answer to a plan: the typed line is visible already
            case events.QuestionAnswered(call, _, _, str()):
                self._header(call)
                self._row(self._styled(f"{self._who(event)} edited the command", "yellow"))
            case events.QuestionAnswered(call, True):
                self._header(call)
                self._row(self._styled(f"{self._who(event)} approved", "green"))
            case events.QuestionAnswered(call, _, feedback):
                self._header(call)
                self._row(self._styled(f"{self._who(event)} declined" + (f": {feedback}" if feedback else ""), "red"))
            case events.ActionFinished():
                self._header(event.call)
                self._finished(event)
                self._open.discard(event.call)
            case events.Denied(call, rule=rule, problem=problem):
                self._header(call)
                self._open.discard(call)
                # The header shows the refused action; the Problem has the reason, the rule and the alternative.
                fix = wording.denial_fix(event, keys=False) if self._recalls else problem.fix
                self._problem(Problem(wording.reason_words(problem.why, rule), "", fix), "denied   ")
            case events.MalformedCall(_, tool, problem):
                self._title(" call ", "black on yellow", tool)
                self._problem(problem, "refused  ")
            case events.Notice(text):
                self._note(text)
            case events.Display(text, kind):
                for line in text.split("\n"):
                    self._print(self._styled(line, _DIFF.get(line[:1], "") if kind == "diff" else ""))
            case events.Retrying() | events.Compacted() | events.Changed():
                self._note(wording.note_words(event))
            case events.ProcessStarted() | events.ProcessEnded() | events.TaskChanged():
                self._note(wording.note_words(event))
            case events.Queued(text, kind):
                when = "after this batch of calls" if kind == "steer" else "after this turn"
                self._note(f"sent to the model {when}: {text}")
            case events.Unqueued(texts):
                self._note(f"withdrawn: {'; '.join(texts)}")
            case events.ErrorRaised(problem):
                self._title(" failed ", "white on red", problem.what)
                self._problem(Problem(problem.why, "", problem.fix), "why      ")
            case events.RunEnded():
                for call in sorted(self._open):
                    self._header(call)  # a read is drawn when it ends, and this one never did
                    self._row(self._styled("stopped", "yellow"), last=True)
                self._open.clear()
                self._print(Text("\n").append_text(self._styled(wording.run_end_words(event), "dim")))
            case never:
                assert_never(never)

    def _who(self, event: events.QuestionAnswered) -> str:
        """Return who answered: `you`, or the name of another client of a hosted session."""
        return "you" if event.by in ("", self._me) else one_line(event.by, _LONGEST_NAME)

    def _past(self, row: PastRow, session: str) -> None:
        """Print one row of the last exchanges of a continued session."""
        match row.kind:
            case "prompt":
                self._print(Text("\n").append_text(self._styled(f"> {row.text.rstrip()}", "bold", prose=True)))
            case "answer":
                self._flow.write(row.text)
                self._flow.end()
            case _:
                self._print(self._styled(self._fit(f"  {wording.past_words(row, session)}"), "dim"))

    def _labelled(self, pairs: wording.Pairs) -> None:
        for label, words in pairs:
            self._print(Text().append(f"{label:<10} ", "dim").append_text(self._styled(words)))

    def _header(self, call: str) -> None:
        """Print the badge and the command of a call, then, unless the call is denied, the verdict and its reason.

        Print them only once per call.
        """
        if call in self._drawn or call not in self._verdicts:
            return
        self._drawn.add(call)
        self._open.add(call)
        verdict = self._verdicts[call]
        _, action = self._actions[call]
        lines = wording.command_lines(action_words(action, self._cwd) if action is not None else "", self._cut)
        tier = verdict.cell.tier
        self._title(f" {tier.shown} ", "{} on {}".format(*wording.BADGE_COLOURS[tier]), "\n".join(lines))
        word, style = _WORD[verdict.verdict]
        if verdict.verdict is not Ruling.DENY:  # the Problem of a denial contains the reason
            why = (
                Text()
                .append(word, style)
                .append_text(self._styled(f"  {wording.reason_words(verdict.why, verdict.rule)}", "dim"))
            )
            self._row(why)

    def _title(self, badge: str, style: str, words: str) -> None:
        """Print the badge and its title. Further rows of a long command are indented below it."""
        lead = Text("\n").append(badge, style).append("  ")
        first, *rest = words.split("\n")
        rows = self._wrapped(self._styled(first, "bold"), cell_len(badge) + 2)
        for line in rest:
            rows += self._wrapped(self._styled(line, "bold"), 4)
        for number, row in enumerate(rows or [Text()]):
            row.rstrip()
            self._print(lead.append_text(row) if number == 0 else Text("    ").append_text(row))

    def _finished(self, event: events.ActionFinished) -> None:
        action = self._actions[event.call][1]
        diff = isinstance(action, EditFile | WriteFile)
        lines = wording.output_lines(event, action)
        for line in lines if diff else wording.folded(lines, wording.fold_of(event), self._cut):
            style = _DIFF.get(line[:1], "") if diff else ""
            text = f"  {line}" if diff else self._fit(f"  {line}")  # a change is shown whole
            self._row(self._styled(text, style, prose=isinstance(action, RunScript | RunArgv)))
        if reached := wording.reached_words(event):
            self._row(self._styled(reached, "dim"))
        for words in wording.contained_words(event):
            self._row(Text().append("contained  ", "bold yellow").append_text(self._styled(words)))
        if event.kept:
            self._row(self._styled(f"complete output: {event.kept}", "dim"))
        self._row(self._styled(wording.end_words(event), "green" if wording.went_well(event) else "yellow"), last=True)

    def _problem(self, problem: Problem, lead: str) -> None:
        why = f": {problem.why}" if problem.why else ""
        self._row(Text().append(lead, "bold red").append_text(self._styled(f"{problem.what}{why}")))
        self._row(Text().append("instead  ", "dim").append_text(self._styled(problem.fix)), last=True)

    def _note(self, text: str) -> None:
        self._print(self._styled(f"note: {text}", "dim"))

    def _row(self, text: Text, *, last: bool = False) -> None:
        """Print one row of a call's block, wrapped here so that every line keeps the bar."""
        rows = self._wrapped(text, 3) or [Text()]
        for number, row in enumerate(rows):
            mark = self._end if last and number == len(rows) - 1 else self._bar
            line = Text().append(f" {mark} ", "dim").append_text(row)
            line.rstrip()
            self._print(line)

    def _wrapped(self, text: Text, lead: int) -> list[Text]:
        """Return the rows of `text`, each to be printed after `lead` columns."""
        if not self._wrap:
            return list(text.split("\n", allow_blank=True))
        return list(text.wrap(self._console, max(self._width - lead, 20)))

    def _fit(self, line: str) -> str:
        """Return `line` cut to the width of a row, if there is one."""
        room = max(self._width - 3, 20)
        if not self._wrap or cell_len(line) <= room:
            return line
        return set_cell_size(line, room - len(self._cut)).rstrip() + self._cut

    def _styled(self, text: str, style: str = "", *, prose: bool = False) -> Text:
        """Return untrusted text as safe Text in one style; `prose` as for `visible`."""
        safe = visible(text, prose=prose)
        return Text().append(safe.encode(self._encoding, "backslashreplace").decode(self._encoding), style)

    def _print(self, text: Text) -> None:
        width = self._width if self._wrap else None
        self._console.print(text, markup=False, highlight=False, soft_wrap=not self._wrap, width=width)
