import os
from pathlib import Path

import nearfar
import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("NEARFAR_DATA", ROOT.parent / "shared"))
QUICK = {"pcie_bench.samples": 200, "pcie_bench.window": "8 KiB", "pcie_bench.transfer": ["64 B", "256 B"], "pcie_bench.cache": "cold"}
"""Makes a scenario with pcie-bench short."""


@pytest.fixture(autouse=True)
def cache(tmp_path):
    """No test finds what another has kept."""
    nearfar.cache(tmp_path / "cache")
    yield tmp_path / "cache"
    nearfar.cache(None)


@pytest.fixture
def measured():
    folder = DATA / "measured/pcie-bench/nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0"
    if not folder.is_dir():
        assert not os.environ.get("NEARFAR_REQUIRE_DATA"), f"there is no {folder}"
        pytest.skip(f"no measured results at {folder}")
    return folder
