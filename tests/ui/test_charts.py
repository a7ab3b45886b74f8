"""The charts, by their exact text."""

from __future__ import annotations

from moetop.ui.charts import Canvas, Line, Mark, Series, TimeAxis, dots, time_at, time_chart
from moetop.ui.maps import ACTIVITY_MAP, POWER_MAP, Point, nearest_point, point_map
from moetop.ui.paint import braille_in_ascii


def text(lines: list[Line]) -> list[str]:
    return ["".join(piece for piece, _role in line) for line in lines]


def test_a_chart_has_scale_line_label_time_and_marks() -> None:
    width = 48
    count = dots(width)
    util = Series("util", "series_util", [0.0] * (count // 2) + [100.0] * (count - count // 2))
    power = Series("power", "series_power", [50.0] * count)
    axis = TimeAxis("-5 min", "01:09:33", [Mark(0.25, "load"), Mark(0.5, "ready")])
    assert text(time_chart(width, 6, [util, power], axis)) == [
        " 100 ┤                 ⡏⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉ util   ",
        "     │                 ⡇                        ",
        "  50 ┤⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⡗⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒⠒ power  ",
        "     │                 ⡇                        ",
        "   0 ┤⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⣀⠇                        ",
        "     └-5 min ─┊load────┊ready── 01:09:33        ",
    ]


def test_a_gap_is_drawn_as_a_gap() -> None:
    count = dots(30)
    values: list[float | None] = [50.0] * 16 + [None] * 16 + [50.0] * (count - 32)
    line = text(time_chart(30, 4, [Series("x", "text", values)], TimeAxis("", "")))[1]
    assert line == "     │⠒⠒⠒⠒⠒⠒⠒⠒        ⠒⠒⠒⠒⠒⠒⠒⠒"


def test_labels_of_lines_that_meet_stand_on_rows_of_their_own() -> None:
    count = dots(40)
    lines = text(
        time_chart(40, 6, [Series(name, "text", [50.0] * count) for name in ("a", "b", "c")], TimeAxis("", ""))
    )
    assert [line[-7:].strip() for line in lines[:5]] == ["", "b", "a", "c", ""]


def test_values_beyond_the_scale_stay_on_its_edge() -> None:
    count = dots(20)
    lines = text(time_chart(20, 4, [Series("x", "text", [250.0] * count)], TimeAxis("", "")))
    assert "⠉" in lines[0] and not set("".join(lines[1:3])) & set("⠉⠒⣀")


def test_a_chart_too_small_to_draw_is_no_chart() -> None:
    assert time_chart(6, 10, [], TimeAxis("", "")) == []
    assert time_chart(60, 1, [], TimeAxis("", "")) == []


def test_every_line_of_a_chart_has_the_same_width() -> None:
    for width in range(10, 120, 7):
        for height in range(2, 20, 3):
            series = [Series("util", "text", [float(i % 100) for i in range(dots(width))])]
            lines = text(time_chart(width, height, series, TimeAxis("-5 min", "01:09:33")))
            assert {len(line) for line in lines} == {width}, (width, height)


def test_the_map_boxes_and_names_the_starvation_zone_and_counts_points_that_meet() -> None:
    points = [Point(100, 55, "▲", "tensor_starved", "glm5") for _ in range(8)]
    points += [Point(99, 99, "●", "tensor_busy", "h200"), Point(0, 18, "○", "idle", "lab")]
    assert text(point_map(60, 12, POWER_MAP, points)) == [
        "     │                                                      ",
        " 100 ┤                                                 ●h200",
        "     │                                                      ",
        "  75 ┤                                           ┌starved?─┐",
        "     │                                           │         │",
        "  50 ┤                                           │ glm5 ▲×8│",
        "     │                                           │         │",
        "     │                                           │         │",
        "  25 ┤○lab                                       └─────────┘",
        "     │                                                      ",
        "   0 ┤                                                      ",
        "     └0── util % ─50──────80═ ×5.5 wider 90════════════100══",
    ]


def test_the_activity_map_names_three_corners() -> None:
    whole = "\n".join(text(point_map(70, 14, ACTIVITY_MAP, [Point(9, 29, "▲", "tensor_starved")])))
    assert "starved" in whole and "memory-bound" in whole and "tensor busy" in whole


def test_a_chosen_point_is_the_one_shown_of_those_that_meet() -> None:
    points = [Point(50, 50, "▲", "warning"), Point(50, 50, "●", "good", chosen=True)]
    lines = point_map(40, 10, POWER_MAP, points)
    shown = [(piece, role) for line in lines for piece, role in line if role == "accent"]
    assert shown == [("●", "accent")]


def test_trails_are_drawn_under_the_points() -> None:
    plain = point_map(40, 10, POWER_MAP, [Point(50, 50, "●", "good")])
    trailed = point_map(40, 10, POWER_MAP, [Point(50, 50, "●", "good", trail=[(0, 0), (10, 20)])])
    assert text(plain) != text(trailed)


def test_text_covers_dots_and_dots_outside_are_ignored() -> None:
    canvas = Canvas(4, 1)
    canvas.dot(0, 0, "text")
    canvas.dot(99, 99, "text")
    canvas.dot(-1, 0, "text")
    canvas.text(1, 0, "ab", "text")
    assert text(canvas.lines()) == ["⠁ab "]


def test_braille_has_an_ascii_shape() -> None:
    assert [braille_in_ascii(code) for code in (0, 0x01, 0x80, 0x81)] == [" ", "'", ".", ":"]


def test_places_on_a_chart_and_points_of_a_map_are_found_again() -> None:
    assert time_at(48, 0) is None
    place = time_at(48, 6)
    assert place is not None and place < 0.05
    point = Point(100, 55, "▲", "text", key=("glm5", 3))
    lines = text(point_map(60, 12, POWER_MAP, [point]))
    row = next(n for n, line in enumerate(lines) if "▲" in line)
    assert nearest_point(60, 12, POWER_MAP, [point], lines[row].index("▲"), row) is point
    assert nearest_point(60, 12, POWER_MAP, [point], 8, 2) is None
