"""Where the time of a real step went: a profiler's trace next to the plan that ran, cause by cause."""
