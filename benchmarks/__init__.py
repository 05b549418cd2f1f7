"""Speed harnesses: each prints a table, or with ``--json`` a document. Nothing here is timed inside a test."""
