"""Writes the table of published runs that plans name their nearest of, as today's model predicts them.

    python -m benchmarks.nearest_runs

`make accuracy` runs it, and `make calibrate` writes the same table with the efficiencies that it fits.
"""

from planner import catalog
from planner.base.resources import data, runs
from planner.calibration.fit import evidence
from planner.calibration.fit.frame import Frame
from planner.calibration.runs import reading
from planner.figures import nearest_runs
from planner.figures.efficiency import Efficiencies

if __name__ == "__main__":
    built_in = catalog.Catalog((catalog.CatalogLayer(catalog.BUILT_IN, data("hardware_catalog")),))
    frame = Frame(built_in, reading.read(runs(), built_in))
    rows = evidence.nearest_rows(frame, Efficiencies.of(built_in))
    print(nearest_runs.write(data("hardware_catalog"), rows, "published.csv"))
