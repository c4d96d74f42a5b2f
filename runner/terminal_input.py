"""Lines from a person. What was typed before a question appeared answers nothing."""

from runner.approval import ReadLine


def line_reader(*, forget: bool = False) -> ReadLine:
    """Line editing and history on the controlling terminal.

    With `forget`, what was typed ahead is thrown away and the answer joins no history: for questions, where a stray key
    must never count as a yes.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import DummyHistory, InMemoryHistory

    session: PromptSession[str] = PromptSession(history=DummyHistory() if forget else InMemoryHistory())

    async def read(prompt: str) -> str:
        if forget:
            _drop_typed_ahead(session)
        # Its own SIGINT handler would replace the one that stops a turn, and not put it back.
        return await session.prompt_async(prompt, handle_sigint=False)

    return read


def _drop_typed_ahead(session: object) -> None:
    import os
    import termios

    from prompt_toolkit import PromptSession
    from prompt_toolkit.input.typeahead import clear_typeahead

    if isinstance(session, PromptSession):
        clear_typeahead(session.input)
    if os.isatty(0):
        termios.tcflush(0, termios.TCIFLUSH)
