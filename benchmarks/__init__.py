"""Speed harnesses: each prints a table, or with ``--json`` a document. Nothing here is timed inside a test.

Importing this package keeps numerical libraries to one thread, unless they are loaded already.
"""

import os

os.environ.update(
    dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS"),
        "1",
    )
)
