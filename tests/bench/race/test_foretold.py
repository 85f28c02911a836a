"""What v, c and acceptance say of the time that drafting takes."""

from __future__ import annotations

from typing import Any

import pytest

from bench.race.fakes import sample, written
from bench.race.test_report import report
from forerun.bench.race.foretold import drafting_price, foretold, together
from forerun.bench.race.protocol import Written
from forerun.control.cost import CostCurve
from forerun.events import Stats

V = {1: 1.0, 2: 1.5, 4: 2.0}
PLAIN = Stats(passes=10, seconds=12.0, pass_seconds=10.0)


def drafted(rounds: dict[int, int], price: float = 0.25, **more: Any) -> Written:
    """A text whose rounds took just what v says, with passes of 1 s and a rest of 0.2 s."""
    nodes = sum(count * size for size, count in rounds.items())
    v = CostCurve(V).seconds(0)
    passing = sum(count * v[1 + size] for size, count in rounds.items())
    rest = 0.2 * sum(rounds.values())
    stats = Stats(drafted=nodes, pass_seconds=passing, choice_seconds=price * nodes)
    stats.seconds = passing + rest + price * nodes
    return written(range(11), stats=stats, drafted_in_rounds=rounds, **more)


def test_what_goes_by_v_and_c_is_foretold() -> None:
    """Also between the rows that were timed, and beyond them."""
    texts = [drafted({0: 3, 1: 2, 2: 1}), drafted({3: 1, 7: 2})]
    plain = [written(range(11), stats=PLAIN)]
    price = drafting_price(texts)
    assert price == pytest.approx(0.25)
    known = foretold(texts, plain, price, CostCurve(V).seconds(0))
    assert known is not None
    assert known["ratio"] == pytest.approx(1)
    assert known["measured"] == pytest.approx(sum(t.stats.seconds for t in texts if t.stats))


def test_slower_passes_than_v_says_are_seen() -> None:
    """The ratio is what was foretold over what it took."""
    text = drafted({1: 4})
    assert text.stats is not None
    text.stats.seconds *= 2
    known = foretold([text], [written((), stats=PLAIN)], 0.25, CostCurve(V).seconds(0))
    assert known is not None
    assert known["ratio"] == pytest.approx(0.5)


def test_nothing_is_foretold_of_what_is_not_known() -> None:
    """Peers tell no rounds, and plain may not have written."""
    v = CostCurve(V).seconds(0)
    plain = [written((), stats=PLAIN)]
    assert foretold([written((1,))], plain, 0.0, v) is None
    assert foretold([drafted({1: 1})], [], 0.0, v) is None
    assert (drafting_price([written((1,))]), together([None])) == (0.0, None)


def test_a_report_foretells_each_task() -> None:
    """With the plain pass of that task and the side's own price; overall is their sum."""
    slow = Stats(passes=10, seconds=24.0, pass_seconds=20.0)
    samples = [sample("plain", "1", stats=PLAIN), sample("plain", "2", task="u", stats=slow)]
    texts = {"t": drafted({1: 4}), "u": drafted({3: 2})}
    for task, text in texts.items():
        one = sample("auto", "1" if task == "t" else "2", task=task)
        samples.append(type(one)(*(one.side, one.question_id, task, 0, 0, 0), text))
    details: dict[str, Any] = {"plain": {}, "auto": {}}
    one = report(samples=samples, details=details, errors={}, curve=V)
    own = one.as_json()["sides"]["auto"]["foretold"]
    assert own["by_task"]["t"]["ratio"] == pytest.approx(1)
    assert own["by_task"]["u"]["foretold"] == pytest.approx(2 * (2 * 2.0 + 0.4) + 6 * 0.25)
    assert own["overall"]["foretold"] == pytest.approx(
        sum(each["foretold"] for each in own["by_task"].values())
    )
    assert any("within 15%" in line and "1 of 2 for auto" in line for line in one.remarks())
    assert report(samples=samples, details=details, errors={}).foretold == {}
