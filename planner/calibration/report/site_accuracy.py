"""How accurate predictions of a site's own runs are: before a fit to them, after it, and by a fit to all but one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from planner.calibration.fit.frame import Frame
from planner.calibration.fit.own_runs import SiteFit
from planner.calibration.report.prediction_errors import Errors
from planner.cost.figures import Array
from planner.figures.efficiency import Efficiencies


def site_document(frame: Frame, shipped: Efficiencies, found: SiteFit, held_out: Array) -> dict[str, Any]:
    """As :func:`planner.calibration.fit.calibrate.document`, of a site's runs: their errors before and after, and of
    each by a fit to the others.
    """
    before = Errors.of(frame.predict(shipped).time, frame.measured)
    after = Errors.of(frame.predict(found.efficiencies).time, frame.measured)
    return {
        "kind": "calibration",
        "schema_version": 1,
        "rows": len(frame.runs),
        "parameters": len(found.shared),
        "degrees_of_freedom": sum(each.freedom for each in found.shared),
        "before": asdict(before) if before else None,
        "fit": asdict(after) if after else None,
        "left_out": asdict(errors) if (errors := Errors.of(held_out, frame.measured)) else None,
        "frameworks": len({run.runtime for run in frame.runs}),
        "factors": [
            {"name": f"{each.runtime}.whole_step", "factor": each.factor, "spread": each.spread}
            for each in found.shared
        ],
    }
