"""The integer program over pools, jobs and time: built, solved, explained."""
