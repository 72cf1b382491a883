"""Energy counters: which are read, how they wrap, what an artifact's manifest says of them."""

import json
import sys
import time
from functools import partial
from types import SimpleNamespace

import pytest

from dana.core import artifacts
from dana.core.artifacts import MANIFEST, make
from dana.core.energy import EnergyCounter, EnergyMeter, joules_between, read_counters


def zone(folder, name, microjoules, most="262143328850"):
    folder.mkdir()
    for file, text in {"name": name, "energy_uj": microjoules, "max_energy_range_uj": most}.items():
        (folder / file).write_text(f"{text}\n")


def test_packages_and_memory_are_read_and_their_parts_are_not(tmp_path):
    zone(tmp_path / "intel-rapl:0", "package-0", "1500000")
    zone(tmp_path / "intel-rapl:0:0", "core", "700000")
    zone(tmp_path / "intel-rapl:0:1", "dram", "250000", "65712999613")
    zone(tmp_path / "intel-rapl:1", "package-1", "2000000")
    zone(tmp_path / "intel-rapl:2", "psys", "9000000")
    zone(tmp_path / "intel-rapl-mmio:0", "package-0", "1500000")
    assert read_counters(tmp_path) == {
        "intel-rapl:0": EnergyCounter(1.5, 262143.32885),
        "intel-rapl:0:1": EnergyCounter(0.25, 65712.999613),
        "intel-rapl:1": EnergyCounter(2.0, 262143.32885),
    }


def test_counters_that_cannot_be_read_are_left_out(tmp_path):
    zone(tmp_path / "intel-rapl:0", "package-0", "not a number")
    zone(tmp_path / "intel-rapl:1", "package-1", "1000000")
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    (tmp_path / "intel-rapl:1" / "energy_uj").mkdir()  # as one that only root may read
    assert read_counters(tmp_path) == {}
    assert read_counters(tmp_path / "none") == {}


def test_gpus_are_asked_where_they_can_be(tmp_path, monkeypatch):
    class NVMLError(Exception):
        pass

    def used(handle):
        if handle == 1:
            raise NVMLError("not supported")
        return 4500

    open_now = []
    nvml = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: open_now.append(1),
        nvmlShutdown=open_now.pop,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetTotalEnergyConsumption=used,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert read_counters(tmp_path) == {"gpu:0": EnergyCounter(4.5)}
    assert not open_now, "NVML is closed again"


def test_a_counter_that_began_again_is_continued():
    before = {"a": EnergyCounter(90.0, 100.0), "b": EnergyCounter(5.0), "gone": EnergyCounter(1.0)}
    after = {"a": EnergyCounter(15.0, 100.0), "b": EnergyCounter(7.5), "new": EnergyCounter(80.0)}
    assert joules_between(before, after) == 25 + 2.5
    assert joules_between(before, before) == 0


def test_a_meter_adds_up_readings_of_a_counter_that_wraps_many_times():
    shown = iter(range(0, 10_000, 60))
    with EnergyMeter(lambda: {"a": EnergyCounter(next(shown) % 100, 100)}, every=60) as meter:
        assert [meter.joules for _ in range(5)] == [60, 120, 180, 240, 300]


def test_a_meter_reads_by_itself_until_it_is_closed():
    readings = []

    def read():
        readings.append(1)
        return {"a": EnergyCounter(10 * len(readings) % 25, 25)}  # wraps between two or three readings

    with EnergyMeter(read, every=0.001) as meter:
        while len(readings) < 20:
            time.sleep(0.001)
    time.sleep(0.05)
    last = len(readings)
    time.sleep(0.05)
    assert len(readings) == last, "the thread has ended"
    assert meter.joules == 10 * last, "every reading counted once"


def test_a_machine_without_counters_tells_nothing_and_starts_no_thread(monkeypatch):
    monkeypatch.setattr("threading.Thread.start", lambda thread: pytest.fail("a thread"))
    with EnergyMeter(dict) as meter:
        assert meter.joules is None


@pytest.mark.parametrize("counters", [[], [100.0, 103.25]])
def test_the_manifest_of_an_artifact_tells_what_it_took(tmp_path, monkeypatch, counters):
    shown = iter(counters)
    meter = EnergyMeter(lambda: {"a": EnergyCounter(next(shown))} if counters else {})
    monkeypatch.setattr(artifacts, "Draft", partial(artifacts.Draft, energy=meter))
    make(tmp_path / "a", "toy", {}, lambda draft: (draft.path / "x").write_text("x"))
    manifest = json.loads((tmp_path / "a" / MANIFEST).read_text())
    assert manifest.get("joules") == (3.2 if counters else None)
    assert ("joules" in manifest) == bool(counters)
