"""Files loaded, changed and built in code have the checks and messages of files."""

import nearfar
import pytest


def test_a_machine_is_changed_and_written_back(tmp_path):
    machine = nearfar.Machine.load("dell-t430").copy("mine")
    machine.change({"host.llc.ddio_ways": 4, "host.dram.access": "70 ns"})
    assert machine["host.llc.ddio_ways"] == "4" and machine.figure("host.dram.access").number == 70_000
    assert machine.figure("host.dram.access").origin == "override"
    machine.save(tmp_path / "mine.toml")
    again = nearfar.Machine.load(tmp_path / "mine.toml")
    assert again.to_toml() == machine.to_toml() and again["host.llc.ddio_ways"] == "4"
    assert nearfar.Machine.load("dell-t430")["host.llc.ddio_ways"] != "4"


def test_what_is_wrong_has_its_place_and_the_remedy():
    machine = nearfar.Machine.load("dell-t430")
    before = machine.to_toml()
    with pytest.raises(nearfar.InputError) as raised:
        machine["host.llc.ddio_wayz"] = 4
    (problem,) = raised.value.problems
    assert problem.file == "set" and problem.line == 1 and "ddio_ways" in problem.help
    with pytest.raises(nearfar.InputError, match="host.dram.access|access"):
        machine["host.dram.access"] = "70 parsecs"
    assert machine.to_toml() == before, "a change that is wrong changes nothing"
    with pytest.raises(nearfar.InputError, match="cannot be"):
        machine["host.dram.access"] = object()
    with pytest.raises(nearfar.InputError) as raised:
        nearfar.Machine.from_toml("name = 'x'\n\nsumary = 'y'\n", "x")
    assert any(one.file == "x.toml" and one.line == 3 and "summary" in one.help for one in raised.value.problems)


def test_a_name_that_is_not_there_is_told_with_those_that_are():
    with pytest.raises(nearfar.InputError, match="dell-t430"):
        nearfar.Machine.load("dell-t431")
    with pytest.raises(KeyError, match="no figure"):
        nearfar.Machine.load("dell-t430")["host.nothing"]


@pytest.mark.parametrize("kind", nearfar.files.CLASSES.values())
def test_every_kind_loads_and_comes_back(kind):
    for name in kind.names():
        file = kind.load(name)
        file.check()
        assert kind.from_toml(file.to_toml(), name).to_toml() == file.to_toml()
        assert file.name == name


def test_a_scenario_takes_a_machine_made_in_code():
    machine = nearfar.Machine.load("dell-t430").copy("mine")
    scenario = nearfar.Scenario.load("latency-by-size")
    scenario["machine"] = machine
    assert nearfar.run(scenario, {"pcie_bench.samples": 100}).provenance["files"][0]["name"].startswith("machines/mine")
    computers = nearfar.Scenario.load("dd-verify").copy("other")
    computers.change({"host.a.iommu": "strict"})
    assert 'iommu = "strict"' in computers.to_toml()
    with pytest.raises(nearfar.InputError, match="iommu"):
        computers["host.a.iommu"] = "sometimes"


def test_a_scenario_that_cannot_be_is_refused():
    scenario = nearfar.Scenario.load("latency-by-size")
    with pytest.raises(nearfar.InputError, match="no socket 7"):
        scenario["pcie_bench.sockets"] = {"device": 0, "memory": 7, "warming": 0}
    with pytest.raises(nearfar.InputError, match="transfer"):
        scenario["pcie_bench.transfer"] = ["64 B", "1 GiB"]
