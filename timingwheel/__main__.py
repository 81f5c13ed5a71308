"""The command `python -m timingwheel`: the same as `timingwheel`."""

import sys

from timingwheel.cli.program import main

if __name__ == "__main__":
    sys.exit(main())
