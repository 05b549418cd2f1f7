"""Which back end, algorithm and protocol every collective of a plan uses: listed, measured, chosen."""
