"""What hardware and software reach, and how surely: fitted efficiencies, measured layers, intervals."""
