"""Calls that certainly cannot work. They go back to the model as a tool error, and no user is asked about them.

Such a call is an edit whose old text is not in the file, is there several times, or whose file does not exist, and a
command whose program does not exist. The check follows the verdict and never replaces an Allow.

THREAT T124: the error tells whether a text is in a file. It is given only where the model may read the file without a
question, judged in the state of the same moment, and only about exactly the file that was judged: another process may
replace a part of the path by a link in the meantime. Everything else is asked about as before.
"""

import os
import sys
from pathlib import Path

from policy.model.action import Action, EditFile, EditNotebook, ReadFile
from policy.model.assessment import Check
from policy.model.facts import Kind
from policy.model.tier import Ruling, Tier
from policy.model.verdict import Allow, Ask, Problem
from runner.engine.authorize import Evaluation
from runner.gate.missing_program import no_such_program
from sandbox.inside.files.access import Refused
from sandbox.inside.files.edit import replacement
from sandbox.inside.regular_file import open_regular, read_descriptor

# THREAT T121: the check runs in the loop of the program, up to twice for each call. Larger ones are asked about.
_MOST_FILE = 256 << 10  # bytes
_MOST_HINT = 64 << 10  # bytes of a file for which the closest line is named
_MOST_OLD = 32 << 10  # characters of the text to replace
_LOOK = "look at what is there with `ls` or `glob`, or create the file with `write`"


def unworkable(action: Action, evaluation: Evaluation) -> Problem | None:
    """Return the problem of an action that certainly fails, else None.

    Only an action that a user would be asked about is examined, or one whose program no rule describes.
    """
    verdict, context = evaluation.verdict, evaluation.recalled.context
    if isinstance(action, EditFile):
        return _unfit_edit(action, evaluation) if isinstance(verdict, Ask) else None
    if isinstance(verdict, Allow):
        examined = any(reason.rule == Check.UNLISTED_PROGRAM for reason in evaluation.assessment.reasons)
    else:
        examined = verdict.cell.ruling is Ruling.ASK
    return no_such_program(evaluation.assessment, context) if examined else None


def _unfit_edit(action: EditFile, evaluation: Evaluation) -> Problem | None:
    """Return the problem of an edit that cannot be applied to the file as it is now."""
    context = evaluation.recalled.context
    reading, verdict = context.evaluate(ReadFile(action.path))
    if not isinstance(verdict, Allow) or reading.tiers != (Tier.READ,):
        return None
    what = f"cannot edit `{action.path}`"
    place = context.facts.look(action.path)
    if place.kind is Kind.MISSING:
        return Problem(what, "there is no such file", _LOOK)
    if place.kind is not Kind.FILE or len(action.old) > _MOST_OLD:
        return None
    content = _content(place.real)
    if content is None or len(content) > _MOST_FILE:
        return None
    try:
        if isinstance(action, EditNotebook):
            from sandbox.inside.files.notebook import changed_notebook  # few sessions change notebooks

            text = content.decode("utf-8", "replace")
            changed_notebook(text, action.operation, action.cell, action.new, action.cell_type, what)
            return None
        hint = len(content) <= _MOST_HINT
        replacement(content, False, action.old, action.new, action.replace_all, action.seen, what, hint=hint)
    except Refused as refused:
        told = {key: str(text) for key, text in refused.problem.items()}
        return Problem(told["what"], told["why"], told["fix"])
    return None


def _content(real: str) -> bytes | None:
    """Return the content of the regular file at the real path `real`, at most _MOST_FILE + 1 bytes; None if the file
    that was opened is not exactly this one.
    """
    try:
        handle, _ = open_regular(real, follow=False)
        try:
            return read_descriptor(handle, _MOST_FILE + 1) if _opened(handle) == real else None
        finally:
            os.close(handle)
    except (OSError, ValueError):
        return None


def _opened(handle: int) -> str:
    """Return the path of an open file, as the kernel knows it. Raises OSError."""
    if sys.platform == "darwin":
        import fcntl

        return os.fsdecode(fcntl.fcntl(handle, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return str(Path(f"/proc/self/fd/{handle}").readlink())
