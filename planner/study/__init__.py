"""What cluster to build around the work: axes of a machine, searched by trials with an exact plan in each."""
