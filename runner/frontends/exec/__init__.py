"""Single actions without a model: `agent exec`, `agent why`, `agent sandbox show`.

May import `agent` and everything below it. These modules are on the path of the fastest command, so heavy imports are
made where they are used. Start reading at `command.py`.
"""
