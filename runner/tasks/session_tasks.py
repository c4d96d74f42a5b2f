"""The task list of one session: its file, the actions of agents on it, and the events about its changes."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from policy.model.action import ManageTasks
from policy.model.verdict import Problem
from runner.events import Emit, TaskChanged
from runner.state.json_file import StateError, StateFile
from runner.tasks.task_list import (
    EMPTY,
    USER,
    SessionTask,
    TaskEdit,
    TaskError,
    TaskHolder,
    TaskList,
    TaskState,
    body_of,
    list_of,
    words_of,
)
from runner.text.sanitize import marked
from sandbox.backend import Outcome

_VERSION = 1
_LISTED = 100  # tasks of one answer to the model
_Change = Callable[[TaskList], tuple[TaskList, tuple[SessionTask, ...]]]


class SessionTasks:
    """The task list of the session. `run` is the ID of the run, and `redact` hides secrets in texts.

    `file` is the path of the list, or None if the session is not stored; `prepare` creates its folder and checks it.
    Several processes may use one file: each change happens under its lock.
    """

    def __init__(
        self,
        run: str,
        file: Path | None,
        emit: Emit,
        redact: Callable[[str], str],
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        self._run = run
        self._emit = emit
        self._redact = redact
        self._prepare = prepare
        self._memory = EMPTY
        self._file = (
            StateFile(file, "the task list", _VERSION, lambda: EMPTY, list_of, body_of) if file is not None else None
        )
        self.offer: Callable[[], None] = lambda: None  # offers the tool to the model, once

    def read(self) -> TaskList:
        """Return the list as it is now. Raise StateError."""
        return self._file.read().value if self._file is not None else self._memory

    def begin(self) -> None:
        """Continue the list of an earlier run of the session. Raise StateError."""
        if self._file is None or not os.path.lexists(self._file.path):
            return
        self._told(self._change(lambda tasks: tasks.adopted(self._run)), USER)
        if self.read().counts[1]:
            self.offer()

    async def perform(self, action: ManageTasks, agent: str) -> Outcome:
        """Do what an agent may do with the list. A refusal is a Problem of the outcome."""
        by = TaskHolder(agent, self._run)
        try:
            if action.operation == "list":
                return Outcome(0, (await asyncio.to_thread(self._listed, action.task)).encode("utf-8", "replace"))
            edit = TaskEdit(
                self._redact(action.subject),
                self._redact(action.description),
                TaskState(action.state) if action.state else None,
                action.blocked_by,
                action.blocks,
            )
            creates = action.operation == "create"
            changed = await asyncio.to_thread(
                self._change,
                lambda tasks: tasks.create(edit, by) if creates else tasks.update(action.task, edit, by),
            )
        except (TaskError, StateError) as error:
            return Outcome(1, problem=error.problem)
        except ValueError:
            return Outcome(1, problem=Problem("the task list was not used", "there is no such state", "use another"))
        self._told(changed, agent)
        tasks = await asyncio.to_thread(self.read)
        done, total = tasks.counts
        said = words_of(changed) or "nothing changed"
        return Outcome(0, f"{said}; {done}/{total} tasks are completed".encode())

    def change(
        self, edit: "Callable[[TaskList, TaskHolder], tuple[TaskList, tuple[SessionTask, ...]]]"
    ) -> tuple[SessionTask, ...]:
        """Make a change of the user, and return the tasks that changed. Raise TaskError or StateError."""
        self.offer()
        changed = self._change(lambda tasks: edit(tasks, TaskHolder(USER, self._run)))
        self._told(changed, USER)
        return changed

    def release(self, agent: str) -> None:
        """Make the claimed tasks of an agent that has ended pending again. Raise StateError.

        This does not wait in the event loop, so that a second cancellation of the agent cannot leave a claim behind.
        """
        ended = TaskHolder(agent, self._run)
        if any(task.owner == ended for task in self.read().tasks.values()):
            self._told(self._change(lambda tasks: tasks.released(ended)), agent)

    def _change(self, edit: _Change) -> tuple[SessionTask, ...]:
        if self._file is None:
            self._memory, changed = edit(self._memory)
            return changed
        self._prepare()
        changed, _ = self._file.change(edit)
        return changed

    def _told(self, changed: tuple[SessionTask, ...], by: str) -> None:
        if not changed:
            return
        done, total = self.read().counts
        for task in changed:
            owner = task.owner.agent if task.owner is not None else None
            self._emit(TaskChanged(task.id, task.state.value, task.subject, owner, by, done, total, task.note))

    def _listed(self, id: str) -> str:
        """Return the list, or one task with its description, in marks.

        THREAT T230: the text of a task may repeat what its author read. It is material, never an instruction.
        """
        tasks = self.read()
        if not id:
            return marked("tasks", "\n".join(tasks.rows(_LISTED)))
        task = tasks.get(id)
        waits = f"\nwaits for: {', '.join(task.blocked_by)}" if task.blocked_by else ""
        text = f"{tasks.row(task)}\nwritten by: {task.author.agent}{waits}\n{task.description}"
        return marked("task", text.rstrip(), id=task.id, author=task.author.agent)
