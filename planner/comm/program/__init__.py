"""Which back end every call uses: rules, the integer program, what it chose."""
