"""A point of a study as a cluster with its requests: what it costs and draws, and what each workload asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from planner.base.errors import WrongQuestion
from planner.catalog import Catalog
from planner.cost import money
from planner.cost.ownership import hourly_cost
from planner.question import node_prices
from planner.question.reading import request
from planner.question.request import Request
from planner.schema.hardware import Cluster, Price
from planner.schema.study import Rate, Value
from planner.study.question import axes
from planner.study.question.study import Study, StudyWorkload

Values = Mapping[str, Value]
_REMEMBERED = 4096
"""Clusters kept at a time."""


def each(path: str) -> Literal["accelerator", "node", "port"]:
    """Whether a figure at a dotted path is of an accelerator, a node or a port: what its rate is multiplied by."""
    if path.endswith("nic_bandwidth"):
        return "port"
    return "accelerator" if path.startswith("accelerator.") or path == "node.scaleup.bandwidth" else "node"


def _number(cluster: Cluster, rate: Rate) -> float:
    per_node = {"accelerator": cluster.node.accelerators, "node": 1, "port": max(1, cluster.node.nics)}[rate.each]
    return float(per_node * cluster.count)


class Clusters:
    """Clusters and requests of a study's points; what points share is made once."""

    def __init__(self, catalog: Catalog, study: Study) -> None:
        self.catalog, self.study = catalog, study
        self._requests: dict[tuple[StudyWorkload, str], Request] = {}
        self._clusters: dict[tuple[Value, ...], Cluster] = {}
        self._plain: dict[tuple[Value, ...], Cluster] = {}

    def cluster(self, values: Values) -> Cluster:
        """The cluster of a point, its nodes' power included.

        Raises:
            WrongQuestion: the values do not make a cluster.
        """
        key = tuple(values.values())
        varied = self._clusters.get(key)
        if varied is None:
            if len(self._clusters) >= _REMEMBERED:
                self._clusters.clear()
            plain = axes.built(self.catalog, self.study.base, values)
            varied = replace(plain, node=replace(plain.node, max_power=self._node_power(values, plain)))
            self._clusters[key] = varied
        return varied

    def _base(self, values: Values) -> Cluster:
        """The point's nodes as the catalog has them: what rates count from."""
        kept = {path: value for path, value in values.items() if path in (*axes.CHOICES, *axes.COUNTS)}
        kept |= {path: value for path, value in values.items() if path == "node.accelerators"}
        key = tuple(kept.values())
        if key not in self._plain:
            self._plain[key] = axes.built(self.catalog, self.study.base, kept)
        return self._plain[key]

    def _beyond(self, rates: tuple[Rate, ...], values: Values, varied: Cluster) -> float:
        """What rates add for the figures in which a cluster differs from its base."""
        plain = self._base(values)
        total = 0.0
        for rate in rates:
            now, before = axes.current(varied, rate.path), axes.current(plain, rate.path)
            total += rate.per_unit * _number(varied, rate) * (float(now or 0) - float(before or 0))
        return total

    def _node_power(self, values: Values, varied: Cluster) -> float | None:
        if varied.node.max_power is None or not self.study.power:
            return varied.node.max_power
        return max(varied.node.max_power + self._beyond(self.study.power, values, varied) / varied.count, 1.0)

    def power(self, values: Values) -> float:
        """Watts at the facility while training.

        Raises:
            WrongQuestion: the node's power or a region is not known.
        """
        varied = self.cluster(values)
        if varied.node.max_power is None:
            raise WrongQuestion(f"the catalog has no power of {varied.node.id}, so nothing is known of its energy")
        pue = varied.region.pue if varied.region else 1.0
        return float(money.power(varied.count, varied.node.max_power, varied.utilisation_of_peak_power, pue))

    def capital(self, values: Values) -> float | None:
        """US dollars to buy the cluster's nodes; None where they are rented.

        Raises:
            WrongQuestion: neither the catalog nor the study has a price.
        """
        costs = self.study.costs
        varied = self.cluster(values)
        if costs.basis != "purchase":
            return None
        if costs.accelerator_usd is not None:
            total = varied.accelerators * costs.accelerator_usd + varied.count * costs.node_usd
            return total + sum(
                rate.per_unit * _number(varied, rate) * float(axes.current(varied, rate.path) or 0)
                for rate in costs.rates
            )
        bought = node_prices.purchase_price(self.catalog, varied.node)
        if bought is None:
            raise WrongQuestion(
                f'the catalog has no price to buy {varied.node.id} at; state one: [costs] accelerator = "$30,000"'
            )
        return max(bought.usd * varied.count + self._beyond(costs.rates, values, varied), 0.0)

    def hourly_usd(self, values: Values) -> float:
        """US dollars for an hour of the whole cluster: rent, or what owning costs.

        Raises:
            WrongQuestion: no price is known.
        """
        varied = self.cluster(values)
        costs = self.study.costs
        capital = self.capital(values)
        if capital is None:
            price = self.request(self.study.workloads[0], values).price
            if price is None:
                raise WrongQuestion(
                    f"{varied.node.id} has no {costs.basis} price in the catalog; "
                    'choose another basis, or state costs: [costs] accelerator = "$30,000"'
                )
            return price.usd * varied.count
        watts = 0.0 if varied.node.max_power is None else varied.node.max_power / varied.node.accelerators
        place = varied.region
        hour = hourly_cost(
            capital / varied.accelerators,
            watts,
            place.electricity if place else 0.0,
            place.pue if place else 1.0,
            costs.ownership,
        )
        return hour.total * varied.accelerators

    def paid(self, of: Literal["cost", "performance-per-dollar"], values: Values) -> float:
        """US dollars that an objective counts: of an hour, or the capital (of an hour too, where nodes are rented).

        Raises:
            WrongQuestion: no price is known, or the cluster costs nothing.
        """
        capital = self.capital(values) if of == "performance-per-dollar" else None
        usd = self.hourly_usd(values) if capital is None else capital
        if usd <= 0.0:
            raise WrongQuestion(f"this cluster costs nothing, so that it has no {of}; raise the prices in [costs]")
        return usd

    def request(self, workload: StudyWorkload, values: Values) -> Request:
        """The request that a workload makes on the cluster of a point (axis -> value, SI), with the catalog's price."""
        varied = self.cluster(values)
        rent = self.study.costs.basis
        key = (workload, varied.node.id)
        if key not in self._requests:
            asked = replace(workload.asked, basis="on-demand" if rent == "purchase" else rent, top=1, catalog=None)
            self._requests[key] = request(workload.model, f"{varied.node.id}:1", asked, known=self.catalog)[1]
        return replace(self._requests[key], cluster=varied, counts=(varied.count,))

    def priced(self, workload: StudyWorkload, values: Values) -> Request:
        """That request with the study's own price of an hour, which its plans then state."""
        wanted = self.request(workload, values)
        if self.study.costs.basis != "purchase":
            return wanted
        usd = self.hourly_usd(values) / wanted.cluster.count
        source = "the study's costs: capital, energy, facility and maintenance per available hour"
        price = Price(basis="on-demand", usd=usd, date="", source=source)
        return replace(wanted, price=price, sold_as=wanted.cluster.node.id, price_basis="owned")

    def measured(self, of: str, values: Values) -> float:
        """A measure that needs no plan: capital (US dollars), power (watts) or accelerators, at a point.

        Raises:
            WrongQuestion: it is not known.
        """
        if of == "capital":
            capital = self.capital(values)
            if capital is None:
                raise WrongQuestion('rented nodes have no capital; [costs] basis = "purchase"')
            return capital
        return self.power(values) if of == "power" else float(self.cluster(values).accelerators)

    def extreme(self, of: str, *, largest: bool) -> float:
        """The least or the largest value of a measure that needs no plan over all axes, found one axis at a time."""
        study = self.study
        point = [0] * len(study.axes)
        best = self.measured(of, study.values(tuple(0 for _ in study.axes)))
        for _ in range(2):
            for place, axis in enumerate(study.axes):
                for n in range(len(axis.values)) if not axis.ordered else (0, len(axis.values) - 1):
                    tried = [*point[:place], n, *point[place + 1 :]]
                    try:
                        value = self.measured(of, study.values(tuple(tried)))
                    except WrongQuestion:
                        continue
                    if (value > best) == largest and value != best:
                        point, best = tried, value
        return best
