"""One run of the model: requests, tool calls, authorization, execution, limits, plan mode.

`context/` builds the texts that the model is sent, `compaction/` shortens a long conversation. May import `sessions`
and everything below it. Start reading at `turns.py`; `run_context.py` has the services that every function receives.
"""
