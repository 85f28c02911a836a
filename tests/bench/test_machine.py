from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest

from forerun import native
from forerun.bench import machine
from forerun.bench.machine import Gauge, LoadMeter, describe


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_bandwidth_and_barrier_are_numbers(threads: int) -> None:
    """Finite and above zero, on every instruction set; a few megabytes are enough here."""
    module = native.load()
    before = module.instruction_set()
    try:
        for name in module.instruction_sets():
            module.use_instruction_set(name)
            # Not a whole number of pages: what is left over is not read.
            reader = module.MemoryReader((8 << 20) + 17, threads)
            for speed in (reader.read(), reader.read()):
                assert math.isfinite(speed)
                assert speed > 1e6
    finally:
        module.use_instruction_set(before)
    seconds = module.barrier_seconds(threads, 3)
    assert math.isfinite(seconds)
    assert seconds > 0


@pytest.mark.parametrize(("threads", "times"), [(0, 1), (257, 1), (1, 0)])
def test_counts_out_of_range_are_refused(threads: int, times: int) -> None:
    """By an error, as everywhere in the compiled module."""
    module = native.load()
    with pytest.raises(ValueError, match="out of range"):
        module.MemoryReader(1 << 20, threads if times else 0)
    with pytest.raises(ValueError, match="out of range"):
        module.barrier_seconds(threads, times)


def test_without_room_bandwidth_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 GiB is not taken from a machine that has little more; the rest is read."""
    monkeypatch.setattr(machine, "free_memory", lambda: (1 << 30) + 1)
    gauge = Gauge(1)
    gauge.read()
    (reading,) = gauge.readings
    assert reading.bandwidth_gb_s is None
    assert reading.barrier_ns > 0


def test_a_gauge_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading has both, in 10^9 bytes a second and in nanoseconds."""
    monkeypatch.setattr(machine, "_READ", 8 << 20)
    gauge = Gauge(2)
    gauge.read()
    gauge.read()
    assert len(gauge.readings) == 2
    for reading in gauge.readings:
        assert 1e-3 < (reading.bandwidth_gb_s or 0) < 1e5
        assert 1e-3 < reading.barrier_ns < 1e9


def test_the_machine_is_described() -> None:
    """Processor, cores, threads and instructions, for whoever reads figures elsewhere."""
    described = describe(3)
    assert described["threads"] == 3
    assert described["cores"] >= 1
    assert described["processor"]
    assert described["instructions"] in native.load().instruction_sets()


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the system does not say")
def test_own_work_is_not_others() -> None:
    """A process that works alone for a while is not its own load, whoever else runs."""
    meter, begun, work = LoadMeter(), os.times(), 0
    while os.times().user - begun.user < 0.3:
        work += sum(range(1000))
    others = meter.others()
    busy = machine._busy()
    assert work > 0
    assert others is not None
    assert busy is not None
    # All that was busy less our own: never more than the cores there are, less most of one.
    share = 0.3 / (time.perf_counter() - meter._begun)
    assert 0 <= others <= (os.cpu_count() or 1) - share + 0.2
    assert (meter.stolen() or 0) >= 0


def test_a_system_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown is None, not zero."""
    monkeypatch.setattr(machine, "_read", lambda path: "")
    meter = LoadMeter()
    assert meter.others() is meter.stolen() is None
    assert describe(1)["processor"]


def test_load_is_what_others_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Busy ticks of all, less the process's own, over the time; stolen ones apart."""
    ticks = os.sysconf("SC_CLK_TCK")
    stat = "cpu  {user} 0 0 500 0 0 0 {stolen} 0 0\ncpu0 1 2 3\n"
    monkeypatch.setattr(machine, "_read", lambda path: stat.format(user=100, stolen=7))
    monkeypatch.setattr(machine, "_own", lambda: 10.0)
    meter = LoadMeter()
    busy = {"user": 100 + 3 * ticks, "stolen": 7 + ticks}
    monkeypatch.setattr(machine, "_read", lambda path: stat.format(**busy))
    monkeypatch.setattr(machine, "_own", lambda: 11.0)
    monkeypatch.setattr(LoadMeter, "_elapsed", lambda self: 4.0)
    assert meter.others() == pytest.approx(0.5)
    assert meter.stolen() == pytest.approx(0.25)
