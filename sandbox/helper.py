"""Where a confined helper starts: `python -I -S helper.py FD`. Standard library only.

A script is compiled anew at each start, a module is not: what the helper does stands in `serving.py`.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

if __name__ == "__main__":
    from sandbox.serving import main  # the path must be set first: -I gives none

    main()
