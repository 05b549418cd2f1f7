"""Quantities: what is read, what is refused, and that writing and reading are inverse."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.base import units
from planner.question import values
from tests.sweeps import sweep
from tests.words import worded

POSITIVE = st.floats(min_value=1e-3, max_value=1e6, allow_nan=False)
SPELLINGS = [(dimension, unit) for dimension, table in units.UNITS.items() for unit in table]


@sweep(
    ("text", "dimension", "value"),
    [
        ("400 Gbit/s", "bandwidth", 5e10),
        ("400 GB/s", "bandwidth", 4e11),
        ("80 GiB", "bytes", 80 * 2**30),
        ("80 GB", "bytes", 8e10),
        ("989 TFLOP/s", "compute", 9.89e14),
        ("1979 TOP/s", "compute", 1.979e15),
        ("5us", "time", 5e-6),
        ("3 h", "time", 10800.0),
        ("10.2 kW", "power", 10200.0),
        ("$5M", "money", 5e6),
        ("$375,000", "money", 375000.0),
        ("375000 USD", "money", 375000.0),
        ("$55.04/h", "price per hour", 55.04),
        ("0.08 USD/kWh", "energy price", 0.08),
        ("380 gCO2e/kWh", "carbon intensity", 380.0),
        ("2T", "count", 2e12),
        ("15t", "count", 15e12),
        ("1e6", "count", 1e6),
        (512, "count", 512.0),
    ],
)
def test_what_people_write_is_read(text: str | int, dimension: str, value: float) -> None:
    assert units.parse(text, dimension) == pytest.approx(value, rel=1e-12)


@worded("units.refused", read=json.loads)
def test_anything_else_is_refused_with_a_reason(question: tuple[Any, str]) -> units.UnitError:
    with pytest.raises(units.UnitError) as raised:
        units.parse(*question)
    return raised.value


@given(st.sampled_from(SPELLINGS), POSITIVE)
def test_every_spelling_scales_by_its_factor(spelling: tuple[str, str], number: float) -> None:
    dimension, unit = spelling
    assert units.parse(f"{number!r} {unit}", dimension) == pytest.approx(number * units.UNITS[dimension][unit])


@given(st.floats(min_value=1, max_value=1e15))
def test_bits_are_an_eighth_of_bytes_and_binary_is_larger(number: float) -> None:
    assert units.parse(f"{number!r} Gbit/s", "bandwidth") * 8 == pytest.approx(
        units.parse(f"{number!r} GB/s", "bandwidth")
    )
    assert units.parse(f"{number!r} GiB", "bytes") > 1.07 * units.parse(f"{number!r} GB", "bytes")


@sweep(
    ("write", "dimension", "low", "high"),
    [
        (units.format_bytes, "bytes", 1.0, 1e15),
        (units.format_seconds, "time", 1e-9, 1e8),
        (units.format_count, "count", 1.0, 1e14),
        (units.format_usd, "money", 1.0, 1e11),
        (units.format_power, "power", 1.0, 1e9),
    ],
)
@given(data=st.data())
def test_what_is_written_is_read_back(
    write: object, dimension: str, low: float, high: float, data: st.DataObject
) -> None:
    value = data.draw(st.floats(min_value=low, max_value=high))
    text = write(value)  # type: ignore[operator]  # each of the formatters above
    # Three significant digits are shown: half a unit of the third, doubled for money's cents.
    assert units.parse(text, dimension) == pytest.approx(value, rel=1e-2)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-12, max_value=1e15))
def test_no_figure_is_in_scientific_notation(value: float) -> None:
    for write in (units.format_bytes, units.format_seconds, units.format_count):
        assert "e" not in write(value).replace("e+", "E").split(" ")[0]


def test_figures_side_by_side_have_one_unit() -> None:
    assert [units.format_seconds(value, like=13.5) for value in (64.8, 13.5)] == ["64.8 s", "13.5 s"]
    assert units.format_usd(1.45e6, like=174e3) == "$1,450k" and units.format_usd(1234.0, like=12.0) == "$1,234.00"
    assert units.format_count(1.2e6, like=311e3) == "1,200 k"
    assert units.format_bytes(2.0**31, like=2.0**29) == "2,048 MiB"


@sweep(("text", "value"), [("1,000,000", 1e6), ("1,234.5k", 1234.5e3), ("-1,000", -1000.0)])
def test_commas_separate_thousands(text: str, value: float) -> None:
    assert units.parse(text, "count") == pytest.approx(value)


@sweep("text", ["1,5", "4,02", "1,00,000", "1000,000", "1,000,00", "1,"])
def test_other_commas_are_refused(text: str) -> None:
    with pytest.raises(units.UnitError, match="a comma separates thousands"):
        units.parse(text, "count")


@sweep(("text", "usd"), [("1k", 1e3), ("2.5M", 2.5e6), ("1000", 1e3), ("1e6", 1e6), ("$5M", 5e6), (7, 7.0)])
def test_a_budget_needs_no_currency(text: str | int, usd: float) -> None:
    assert values.positive_amount("--max-cost", units.plain_dollars(text), "money") == usd
