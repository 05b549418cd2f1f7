"""Clusterwright: which accelerator cluster to buy, rent or use, and how to train on it."""

__version__ = "0.1.0"
