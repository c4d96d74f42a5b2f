"""The start script of a confined helper: `python -I -S helper.py FOLDER FD`. Standard library only.

FOLDER contains the top-level package of this program, which has another name in a wheel than in a checkout.

Python compiles a script again at each start, but not a module, so the code of the helper is in `command_server.py`.
"""

import sys

# Last, so that no module of an environment replaces one of the standard library.
sys.path.append(sys.argv.pop(1))

if __name__ == "__main__":
    from sandbox.inside.command_server import main  # the path must be set first: -I gives none

    main()
