"""``python -m collectors NAME``: see :mod:`collectors.process`."""

import sys

from collectors.process import main

if __name__ == "__main__":
    sys.exit(main())
