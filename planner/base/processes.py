"""Processes beside this one."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def without_main() -> Iterator[None]:
    """Fresh processes that begin meanwhile do not run the caller's script again.

    ``multiprocessing`` imports the main module into each of them, as their work may be defined there; ours never is,
    and a script without ``if __name__ == "__main__":`` would do everything once more.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
