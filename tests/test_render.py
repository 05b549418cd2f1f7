"""Tables, folded lines, JSON, colour and bars, on a terminal and in a pipe."""

import io
import json
import re
import sys
import time
from collections.abc import Callable

import pytest

from planner.commands.screen import render, typeset
from tests.sweeps import sweep

HEADERS = ["#", "TP", "recompute", "step", "memory"]
ROWS = [[1, 4, "none", "9.61 s", "68.9 / 80 GiB"], [10, 16, "selective", "12.4 s", "9.25 / 80 GiB"]]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def open_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Terminal]:
    """Turn stdout and stderr into a terminal without colour; to be called inside the test, past pytest's capture."""

    def install(columns: int = 30) -> Terminal:
        stream = Terminal()
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, stream)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.delenv("FORCE_COLOR", raising=False)
        return stream

    return install


def plain(text: str) -> str:
    """A text without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


# ---- tables ----------------------------------------------------------------------------------------------------------


def test_columns_stand_on_the_decimal_point() -> None:
    ((lines,), _, hidden) = typeset.table(HEADERS, ROWS)
    assert lines == [
        " #  TP  recompute     step          memory",
        " 1   4  none        9.61 s  68.9  / 80 GiB",
        "10  16  selective  12.4  s   9.25 / 80 GiB",
    ]
    assert hidden == []


@sweep(
    ("cells", "expected"),
    [
        (["1", "22", "333"], ["  1", " 22", "333"]),
        (["$152k", "$1,690k"], ["  $152k", "$1,690k"]),
        (["46.9 %", "7 %", "-"], ["46.9 %", " 7   %", "     -"]),
        (["-4", "+10"], [" -4", "+10"]),
        (["4..16", "8"], ["4..16", "8"]),
        (["TP8", "TP16"], ["TP8", "TP16"]),
        (["", "-"], ["", "-"]),
        (["1e9", "2"], ["1e9", "2"]),
    ],
)
def test_cells_are_aligned_by_what_they_are(cells: list[str], expected: list[str]) -> None:
    ((lines,), _, _) = typeset.table(["x"], [[text] for text in cells])
    body = [line.rstrip() for line in lines[1:]]
    assert body == [line.rstrip() for line in expected]


def test_alignment_can_be_given() -> None:
    ((lines,), _, _) = typeset.table(["name", "n"], [["a", "none"], ["bcdef", "7"]], align="rl")
    assert lines == [" name  n", "    a  none", "bcdef  7"]
    with pytest.raises(ValueError, match="2 columns"):
        typeset.table(["a", "b"], [], align="l")


def test_cells_of_every_kind() -> None:
    assert [typeset.cell(value) for value in (None, True, 1234, 0.5, "a", 1e9)] == [
        "-",
        "yes",
        "1,234",
        "0.5",
        "a",
        "1e+09",
    ]


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert typeset.cell("a\x1b[2Jb\nc") == "a [2Jb c"


def test_wide_characters_take_two_columns() -> None:
    ((lines,), _, _) = typeset.table(["name", "n"], [["模型", 1], ["abcd", 2]])
    assert lines[1:] == ["模型  1", "abcd  2"]


def test_an_empty_table_is_its_header() -> None:
    assert typeset.table(["a", "b"], []) == ([["a  b"]], [], [])


@sweep("width", [40, 47, 60, 200])
def test_a_column_is_broken_over_lines_before_it_is_dropped(width: int) -> None:
    told = "use 2 dgx-a100-80gb, use 1 dgx-v100, rent 1 p5.48xlarge spot"
    rows = [[1, told, "$5.64k"], [2, "buy 1 hgx-h100", "$310k"]]
    blocks, _, hidden = typeset.table(["#", "what", "total"], rows, align="rlr", width=width, folded="what")
    lines = blocks[0]
    assert all(len(line) <= width for block in blocks for line in block)
    assert not hidden
    assert blocks[1:] == ([] if width > 40 else [["#     total", "1    $5.64k", "2  $310k"]])
    first, second = (n for n, line in enumerate(lines) if line[:1] in "12" and line[:1])
    assert " ".join(" ".join(line[3:].replace("$5.64k", "").split()) for line in lines[first:second]) == told
    assert lines[second].split() == ["2", "buy", "1", "hgx-h100", *(["$310k"] if width > 40 else [])]
    if width == 200:
        assert lines == typeset.table(["#", "what", "total"], rows, align="rlr").blocks[0]


@sweep("width", range(16, 60))
@sweep("priority", [None, ["TP", "recompute"], [4, 0]])
def test_a_narrow_table_loses_only_what_may_go(width: int, priority: list[str | int] | None) -> None:
    blocks, alike, hidden = typeset.table(HEADERS, ROWS, priority=priority, width=width)
    assert all(len(line) <= width for block in blocks for line in block)
    may_go = {HEADERS[each] if isinstance(each, int) else each for each in priority or ()} - {"#"}
    assert set(hidden) <= may_go
    assert not (hidden and len(blocks) > 1)
    shown = [head for block in blocks for head in block[0].split()[1:]]
    assert sorted(["#", *shown, *(each.split()[0] for each in alike), *hidden]) == sorted(HEADERS)


def test_columns_go_by_importance_and_the_rest_below() -> None:
    least = typeset.table(HEADERS, ROWS, width=40, priority=["recompute"])
    assert (len(least.blocks), least.hidden) == (1, ["recompute"])
    blocks = typeset.table(HEADERS, ROWS, width=20, priority=["recompute"]).blocks
    assert [line.split() for line in blocks[-1]] == [
        ["#", "memory"],
        *([str(row[0]), *str(row[-1]).split()] for row in ROWS),
    ]
    assert max(len(line) for block in blocks for line in block) <= 20


def test_a_long_table_drops_columns_from_the_right() -> None:
    many = [ROWS[n % len(ROWS)] for n in range(typeset.CONTINUED + 1)]
    found = typeset.table(HEADERS, many, width=40)
    assert (len(found.blocks), found.hidden) == (1, ["memory"])


def test_what_is_the_same_in_all_rows_of_a_narrow_table_is_said_once() -> None:
    headers, rows = ["#", "TP", "step", "cost"], [["1", "8", "9.6 s", "$152k"], ["2", "8", "9.7 s", "-"]]
    assert typeset.table(headers, rows, width=17) == (
        [["#   step   cost", "1  9.6 s  $152k", "2  9.7 s      -"]],
        ["TP 8"],
        [],
    )
    assert typeset.table(headers, rows, width=80).alike == []
    assert typeset.table(headers, rows[:1], width=8).alike == []


def test_a_piped_table_is_plain_and_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    render.table(HEADERS, ROWS, title="Plans")
    assert capsys.readouterr().out.splitlines() == ["Plans", *typeset.table(HEADERS, ROWS).blocks[0]]


def test_a_table_on_a_terminal_goes_on_below_and_says_what_it_left_out(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal(40)
    render.table(HEADERS, ROWS, priority=["recompute"])
    render.table(HEADERS, ROWS)
    lines = terminal.getvalue().splitlines()
    assert lines[0].split() == ["#", "TP", "step", "memory"]
    assert lines[3] == "not shown: recompute"
    assert lines[4] == " #  TP  recompute     step"
    assert lines[-len(ROWS) - 1].split() == ["#", "memory"]


# ---- lines -----------------------------------------------------------------------------------------------------------


def test_a_line_hangs_under_its_label(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal()
    render.text("Why #1   matrix 61 %  attention 12 %  bubble 7 %")
    assert terminal.getvalue().splitlines() == [
        "Why #1   matrix 61 %",
        "         attention 12 %",
        "         bubble 7 %",
    ]


def test_a_line_hangs_under_its_own_indent(open_terminal: Callable[..., Terminal]) -> None:
    terminal = open_terminal()
    render.text("  one two three four five six seven")
    assert terminal.getvalue().splitlines() == ["  one two three four five six", "  seven"]


def test_a_number_stays_with_its_unit() -> None:
    assert typeset.fold("bubble 7 %  TP 6 %", 16) == ["bubble 7 %  TP", "6 %"]


def test_a_piped_line_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    render.text("word " * 100 + "end")
    render.text()
    assert capsys.readouterr().out == "word " * 100 + "end\n\n"


# ---- JSON ------------------------------------------------------------------------------------------------------------


def test_json_keeps_order_and_characters(capsys: pytest.CaptureFixture[str]) -> None:
    render.json({"b": 1, "a": ["é"]})
    assert capsys.readouterr().out == '{\n  "b": 1,\n  "a": [\n    "é"\n  ]\n}\n'


def test_json_has_no_nan() -> None:
    with pytest.raises(ValueError, match="JSON"):
        render.json({"x": float("nan")})


def test_an_ascii_stream_still_gets_valid_output(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    render.json({"name": "é"})
    render.text("2 × 3")
    stream.flush()
    document, _, line = raw.getvalue().decode("ascii").partition("}\n")
    assert json.loads(document + "}") == {"name": "é"}
    assert line == "2 ? 3\n"


# ---- errors and colour -----------------------------------------------------------------------------------------------


def test_an_error_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    render.error("no model 'x'")
    assert capsys.readouterr() == ("", "clusterwright: no model 'x'\n")


@sweep(
    ("settings", "tty", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
    ],
)
def test_when_it_colours(settings: dict[str, str], tty: bool, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    stream = Terminal() if tty else io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "200")
    render.table(HEADERS, ROWS, title="[bold]Plans[/bold]")
    render.text("Bottleneck    memory [1]")
    render.error("bad [thing]")
    assert ("\x1b[" in stream.getvalue()) == expected
    expected_lines = ["[bold]Plans[/bold]", *typeset.table(HEADERS, ROWS).blocks[0], "Bottleneck    memory [1]"]
    assert plain(stream.getvalue()).splitlines() == [*expected_lines, "clusterwright: bad [thing]"]


# ---- progress --------------------------------------------------------------------------------------------------------


def test_no_bar_in_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "QUIET_SECONDS", 0.0)
    with render.progress("search", 3) as advance:
        advance(3, note="best 9.61 s")
    assert capsys.readouterr() == ("", "")


def test_long_work_says_how_far_it_is_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(sys, "__stderr__", log)
    monkeypatch.delenv("CLUSTERWRIGHT_PROGRESS")
    monkeypatch.setattr(render, "FIRST_LINE_S", 0.05)
    with render.progress("search", 4) as advance:
        advance(3, note="best 9.61 s")
        for _ in range(200):
            time.sleep(0.02)
            if log.getvalue():
                break
    assert log.getvalue().startswith("search 75%, best 9.61 s, 0 s so far\n")


def test_no_bar_for_short_or_quiet_work(
    open_terminal: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = open_terminal()
    monkeypatch.setattr(render, "QUIET_SECONDS", 1e9)
    with render.progress("search", 3) as advance:
        advance(3)
    monkeypatch.setattr(render, "QUIET_SECONDS", 0.0)
    with render.progress("search", 3, quiet=True) as advance:
        advance(3)
    assert terminal.getvalue() == ""


def test_a_bar_for_long_work(open_terminal: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = open_terminal(columns=100)
    monkeypatch.setattr(render, "QUIET_SECONDS", 0.0)
    with render.progress("search", 3) as advance:
        appears(terminal)
        advance(1, note="best [9.61 s]")
        advance(2)
    shown = plain(terminal.getvalue())
    assert "search" in shown
    assert "100%" in shown
    assert "best [9.61 s]" in shown or "best" not in shown


def appears(terminal: Terminal) -> None:
    """Waits until something is on the screen, for ten seconds at most."""
    for _ in range(1000):
        if terminal.getvalue():
            return
        time.sleep(0.01)


def test_work_of_unknown_length_gets_a_clock(
    open_terminal: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is said of what is left, and it is shown though nobody says that anything was done."""
    terminal = open_terminal(columns=100)
    monkeypatch.setattr(render, "QUIET_SECONDS", 0.0)
    with render.progress("solving", None):
        appears(terminal)
    shown = plain(terminal.getvalue())
    assert "solving" in shown and "0:00:00" in shown and "%" not in shown and "left" not in shown


def test_a_bar_goes_away_when_the_work_fails(
    open_terminal: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_terminal()
    monkeypatch.setattr(render, "QUIET_SECONDS", 0.0)
    with pytest.raises(KeyError), render.progress("search", None) as advance:
        advance()
        raise KeyError


def test_words_wider_than_the_terminal_break_behind_their_commas_and_colons() -> None:
    """A group of pipelines is one word of its configuration, and 87 columns wide."""
    group = "group=copies=2,width=4,dgx-h100:layers=12:tp=2,dgx-a100-80gb:layers=20:tp=8,dgx-h100:layers=1:tp=1"

    lines = typeset.fold(f"Recommended    {group} zero=1", 80)

    assert max(map(len, lines)) <= 80 and "".join(line.strip() for line in lines[:-1]).endswith(group[-10:])
