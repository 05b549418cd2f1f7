"""Hardware as data: TOML and CSV folders to one validated :class:`Catalog`, and clusters built from it."""

from planner.catalog.checking import BUILT_IN, problems
from planner.catalog.cluster import cluster, cluster_from_file, joined
from planner.catalog.files import FOLDERS, ONE, FileProblem
from planner.catalog.loading import Catalog, UnknownName, load, version
from planner.catalog.merge_layers import CatalogLayer

__all__ = [
    "BUILT_IN",
    "FOLDERS",
    "ONE",
    "Catalog",
    "CatalogLayer",
    "FileProblem",
    "UnknownName",
    "cluster",
    "cluster_from_file",
    "joined",
    "load",
    "problems",
    "version",
]
