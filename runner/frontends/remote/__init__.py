"""The web page of hosted sessions (`agent serve --listen`): an HTTPS server with a WebSocket and scoped tokens.

`command.py` is the process, `door.py` decides who may enter, `viewer.py` serves one signed-in page, `static/` is the
page. May import `agent` and everything below it; only the process imports the library `websockets`. Start reading at
`command.py`.
"""
