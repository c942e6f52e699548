"""The wheels: `pip install` gives library and command, the jar comes apart, and building compiles nothing twice."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[2]
JAR = Path(lakemark.__file__).with_name("jars") / "lakemark-spark.jar"

# It alone is linked anew: without symbols.
OURS = "lakemark-python"


def run(*command: str | Path, timeout: int = 900) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    # As in the Makefile: there everything is compiled already.
    environment.setdefault("CARGO_TARGET_DIR", str(Path.home() / ".cache" / "lakemark" / "target"))
    done = subprocess.run(
        [str(part) for part in command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def features(*selection: str) -> set[str]:
    """Every crate with its features, as cargo would build this selection of packages."""
    manifest = ROOT / "rust" / "Cargo.toml"
    listing = run(
        *("cargo", "tree", "--offline", "--manifest-path", manifest, "--edges", "normal,build"),
        *("--format", "{p} {f}", "--prefix", "none", *selection),
    )
    return {line.removesuffix(" (*)").strip() for line in listing.stdout.splitlines() if line.strip()}


def test_the_wheel_is_built_with_the_features_of_the_workspace() -> None:
    workspace, alone = features("--workspace"), features("--package", OURS)
    assert len(alone) > 300
    assert alone <= workspace


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    maturin = Path(sys.executable).with_name("maturin")
    out = tmp_path_factory.mktemp("wheel")
    built = run(maturin, "build", "--profile", "dev", "--locked", "--out", out, timeout=1800)
    compiled = set(re.findall(r"Compiling (\S+) v", built.stderr))
    assert {name for name in compiled if not name.startswith("lakemark-")} == set()
    (wheel,) = out.glob("*.whl")
    return wheel


def test_the_wheel_fits_every_python_from_3_10_and_holds_what_it_should(wheel: Path) -> None:
    assert re.fullmatch(rf"lakemark-{re.escape(lakemark.__version__)}-cp310-abi3-\w*linux\w*\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = archive.read(f"lakemark-{lakemark.__version__}.dist-info/entry_points.txt").decode()
    for name in ("__init__.py", "_internal.abi3.so", "_internal.pyi", "py.typed", "reports/__init__.py", "spark.py"):
        assert f"lakemark/{name}" in names
    assert "lakemark=lakemark.__main__:main" in entry_points.replace(" ", "")
    # Whoever needs no Spark does not load the jar.
    assert [name for name in names if name.endswith(".jar")] == []


def test_a_fresh_environment_has_library_and_command_and_the_jar_of_its_own_wheel(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-index", wheel)

    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(pa.table({"n": list(range(100)), "s": ["a", "b"] * 50}), folder / "one.parquet")
    library = run(
        python,
        "-c",
        "import sys, lakemark; t = lakemark.Table(sys.argv[1]); t.create_index('s', progress=False); "
        "print(lakemark.__file__, t.count(\"s = 'a' AND n < 10\"))",
        folder,
    )
    path, count = library.stdout.split()
    assert Path(path).is_relative_to(home)
    assert count == "5"

    command = home / "bin" / "lakemark"
    assert run(command, "count", folder, "s = 'b'").stdout == "50\n"
    assert lakemark.__version__ in run(command, "--version").stdout

    if JAR.is_file():
        packed = run(sys.executable, ROOT / "release" / "jar_wheel.py", JAR, tmp_path).stdout.strip()
        run(python, "-m", "pip", "install", "--quiet", "--no-index", packed)
        jar = Path(run(python, "-c", "import lakemark.spark as s; print(s.jar_path())").stdout.strip())
        assert jar.is_relative_to(home)
        assert jar.read_bytes() == JAR.read_bytes()
    shutil.rmtree(home)
