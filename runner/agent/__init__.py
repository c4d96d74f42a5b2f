"""The embedding interface: an agent that another program can create, prompt and close.

Opens sessions, switches models, and turns runs into streams of events. May import `loop` and everything below it, but
no front end. Start reading at `agent.py`.
"""
