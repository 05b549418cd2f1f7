"""The command line: all of it (``command_line.py``), each command, and ``screen/`` with what is printed."""
