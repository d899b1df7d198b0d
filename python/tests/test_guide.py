"""Every block of Python in the guide runs, those of a page one after the other."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT

PAGES = [page for page in sorted((ROOT / "docs/guide/src").glob("*.md")) if "```python" in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_of_the_guide_runs(page, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_readme_and_the_guide_name_python_that_is_there():
    import nearfar

    for name in re.findall(r"nearfar\.([A-Za-z_]+)", "".join(page.read_text() for page in PAGES)):
        assert hasattr(nearfar, name), name
