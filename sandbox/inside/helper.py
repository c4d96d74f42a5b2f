"""The start script of a confined helper: `python -I -S helper.py FD`. Standard library only.

Python compiles a script again at each start, but not a module, so the code of the helper is in `command_server.py`.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

if __name__ == "__main__":
    from sandbox.inside.command_server import main  # the path must be set first: -I gives none

    main()
