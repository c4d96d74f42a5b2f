"""The web: requests of the runner itself to other hosts, pages for the model, and searches.

`pinned_http.py` has the connections, which remote tool servers and HTTP hooks use as well. Only it and `fetch.py`
import the library `httpx2`. A page is converted by a confined program (`runner/documents/`). May import `documents` and
everything below it. Start reading at `session_web.py`.
"""
