"""Run Clusterwright from a checkout without installing it: ``python cli.py plan ...``."""

import sys

from planner.commands.command_line import main

if __name__ == "__main__":
    sys.exit(main())
