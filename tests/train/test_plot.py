from __future__ import annotations

import pytest

from forerun.bench.plot import new_figure
from forerun.train.plot import draw_training

pytest.importorskip("matplotlib")


def test_each_position_has_its_curve() -> None:
    """Over the tokens that were learned from; an empty history draws empty axes."""
    history = [
        {"learned": 100 * (i + 1), "alpha": [0.2 + i / 10, 0.1], "agreement": [0.3, 0.2]}
        for i in range(3)
    ]
    figure = new_figure()
    draw_training(figure, history)
    left, right = figure.axes
    assert [line.get_label() for line in left.lines] == ["guess 1", "guess 2"]
    assert list(left.lines[0].get_xdata()) == [100, 200, 300]
    assert list(left.lines[0].get_ydata()) == pytest.approx([0.2, 0.3, 0.4])
    assert list(right.lines[1].get_ydata()) == [0.2, 0.2, 0.2]
    empty = new_figure()
    draw_training(empty, [])
    assert not any(axes.lines for axes in empty.axes)
