"""How long each job takes on each pool, or on several at once: columns of the integer program."""
