"""One conversion: the request from standard input, the reader for its kind, the answer to standard output."""

import importlib
import json
import os
import sys

from .answer import RefusedDocument

# Each module has a function `read(data, options)` that returns the document.
READERS = {"pdf": "pdf", "image": "image", "notebook": "notebook", "html": "html"}


def run() -> None:
    """Convert one document, and end the process. What a library prints goes to standard error."""
    source, target = sys.stdin.buffer, os.dup(1)
    os.dup2(2, 1)
    head = json.loads(source.readline(1 << 16))
    kind, options = head["kind"], head["options"]
    try:
        reader = importlib.import_module(f"{__package__}.{READERS[kind]}")
        answer = {"document": reader.read(source.read(), options).json()}
    except RefusedDocument as refused:
        what = f"cannot read the {kind} document"
        answer = {"problem": {"what": what, "why": refused.why, "fix": refused.fix}}
    except RecursionError:
        why, fix = "it is nested too deeply", "the document may be damaged or hostile"
        answer = {"problem": {"what": f"cannot read the {kind} document", "why": why, "fix": fix}}
    # Other errors end the process with a status that is not 0: the runner reports the last line of the traceback.
    view = memoryview(json.dumps(answer).encode())
    while view:
        view = view[os.write(target, view) :]
    os._exit(0)  # without the destructors of libraries, which a hostile document may have damaged
