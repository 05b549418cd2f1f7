"""Micro-benchmarks of one machine: which kernels, how they are timed, where rows are kept, what is fitted to them."""
