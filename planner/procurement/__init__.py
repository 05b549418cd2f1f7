"""What to buy, rent or use for a portfolio of training jobs: money, networks, an integer program and its answer.

``portfolio`` (the question) -> ``pools`` (what could be acquired, with its bill of materials) -> ``columns`` (how long
each job takes on each, from the exact plan search) -> ``model`` (the integer program) -> ``answer`` (the document).
"""
