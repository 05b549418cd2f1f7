"""What everything else stands on: errors, units, where data lies, the version."""
