"""What a release is built by: scripts that parse, one version everywhere, a jar as a package, an honest workflow."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
POM = "{http://maven.apache.org/POM/4.0.0}"


def scripts() -> list[Path]:
    """The shell scripts of the repository that build, test and release it."""
    found = [path for folder in (".ci", "release") for path in sorted((ROOT / folder).iterdir()) if path.is_file()]
    return [path for path in found if path.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash")]


def version() -> str:
    (found,) = re.findall(r'^version = "([^"]+)"', (ROOT / "rust/Cargo.toml").read_text("utf-8"), re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("script", scripts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_parses_and_stops_at_the_first_failure(script: Path) -> None:
    subprocess.run(["/usr/bin/env", "bash", "-n", script], check=True)
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")
    assert script.stat().st_mode & 0o111, f"chmod +x {script.name}"


def test_scripts_are_looked_at() -> None:
    assert {"run", "setup", "build", "try"} <= {path.name for path in scripts()}


def test_every_part_of_a_release_has_the_version_of_the_workspace() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'"lakemark-spark=={version()}"' in pyproject
    pom = ET.parse(ROOT / "spark-plugin/pom.xml").getroot()  # noqa: S314 - ours
    assert pom.findtext(f"{POM}version") == version()
    cargo = (ROOT / "rust/Cargo.toml").read_text("utf-8")
    ours = re.findall(r'^lakemark-\w+ = \{ path = "\w+"(.*) \}$', cargo, re.MULTILINE)
    assert len(ours) == 8
    assert set(ours) == {f', version = "{version()}"'}
    for page in ("docs/packages.md", "docs/recipes.md", "docs/start/spark.md"):
        named = re.findall(r"lakemark[-_]spark[:=-]+(\d+\.\d+\.\d+)", (ROOT / page).read_text("utf-8"))
        assert named, page
        assert set(named) == {version()}, page


def test_every_crate_that_is_published_says_what_it_is() -> None:
    published = []
    for manifest in sorted(ROOT.glob("rust/*/Cargo.toml")):
        text = manifest.read_text("utf-8")
        if "publish = false" in text:
            continue
        published.append(manifest.parent.name)
        assert re.search(r'^description = ".{20,}"$', text, re.MULTILINE), manifest
        assert (manifest.parent / "README.md").is_file(), manifest
    assert published == ["allocator", "catalog", "cli", "datafusion", "format", "index", "serve", "table"]


def test_the_pom_has_what_a_repository_asks_for_and_is_reduced_in_a_release() -> None:
    pom = ET.parse(ROOT / "spark-plugin/pom.xml").getroot()  # noqa: S314 - ours
    for name in ("groupId", "artifactId", "version", "name", "description"):
        assert pom.findtext(f"{POM}{name}"), name
    assert pom.find(f"{POM}licenses/{POM}license/{POM}url") is not None
    assert pom.find(f"{POM}developers/{POM}developer/{POM}name") is not None
    (profile,) = [each for each in pom.findall(f"{POM}profiles/{POM}profile") if each.findtext(f"{POM}id") == "release"]
    plugins = {each.text for each in profile.iter(f"{POM}artifactId")}
    assert plugins == {"maven-source-plugin", "maven-javadoc-plugin", "maven-deploy-plugin"}
    assert profile.findtext(f"{POM}properties/{POM}lakemark.reduced.pom") == "true"


def test_the_workflow_runs_verbs_that_there_are_and_says_what_never_ran() -> None:
    path = ROOT / ".github/workflows/release.yml"
    workflow = yaml.safe_load(path.read_text("utf-8"))
    commands = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    verbs = {word for command in commands for word in re.findall(r"^make ([\w-]+)", command)}
    assert verbs == {"release", "try-release"}
    assert [verb for verb in verbs if not re.search(rf"^{verb}:", MAKEFILE, re.MULTILINE)] == []
    # YAML takes the key `on` for a truth value. Nothing runs by itself, and nothing may be written.
    assert workflow[True] == {"workflow_dispatch": None}
    assert workflow["permissions"] == {"contents": "read"}
    assert [name for name in workflow["jobs"] if "macos" in name] == ["macos-never-run"]
    assert "has never run" in path.read_text("utf-8")
    named = {word for command in commands for word in re.findall(r"(?:release|tests)/[\w/.-]+", command)}
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_what_the_scripts_name_is_there() -> None:
    text = "\n".join(path.read_text("utf-8") for path in scripts())
    named = set(re.findall(r'(?:\$source|\$checkout)/((?:\.ci|release|spark-plugin|tests)/[\w./-]+)"', text))
    assert {"release/requirements.txt", "release/jar_wheel.py", "release/Containerfile", ".ci/tool"} <= named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def jar_wheel(jar: Path, folder: Path) -> Path:
    command = [sys.executable, ROOT / "release/jar_wheel.py", jar, folder]
    return Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())


def a_jar(folder: Path) -> Path:
    jar = folder / "lakemark-spark.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\r\nImplementation-Version: {version()}\r\n")
    return jar


def test_the_jar_is_a_wheel_of_its_own_with_the_same_bytes_each_time(tmp_path: Path) -> None:
    jar = a_jar(tmp_path)
    wheel = jar_wheel(jar, tmp_path / "one")
    assert wheel.name == f"lakemark_spark-{version()}-py3-none-any.whl"
    assert wheel.read_bytes() == jar_wheel(jar, tmp_path / "other").read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        assert archive.read("lakemark_spark/lakemark-spark.jar") == jar.read_bytes()
        record = archive.read(f"lakemark_spark-{version()}.dist-info/RECORD").decode()
        lines = [line.split(",") for line in record.splitlines()]
        assert sorted(name for name, _, _ in lines) == sorted(archive.namelist())
        for name, digest, length in lines[:-1]:
            content = archive.read(name)
            sha256 = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            assert (digest, length) == (f"sha256={sha256}", str(len(content)))


def test_pip_installs_the_wheel_of_the_jar(tmp_path: Path) -> None:
    jar = a_jar(tmp_path)
    wheel = jar_wheel(jar, tmp_path)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "--target", tmp_path / "site", wheel], check=True)
    installed = tmp_path / "site" / "lakemark_spark"
    assert (installed / "lakemark-spark.jar").read_bytes() == jar.read_bytes()
    said = subprocess.run(
        [sys.executable, "-c", "import lakemark_spark; print(lakemark_spark.__version__)"],
        cwd=tmp_path / "site",
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout.strip() == version()


def test_what_is_no_jar_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jar"
    broken.write_bytes(b"no jar")
    command = [sys.executable, ROOT / "release/jar_wheel.py", broken, tmp_path]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "make jar" in done.stderr


def test_the_helper_looks_where_the_wheel_puts_the_jar() -> None:
    spec = importlib.util.spec_from_file_location("jar_wheel", ROOT / "release/jar_wheel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    helper = (ROOT / "python/lakemark/spark.py").read_text("utf-8")
    assert f'_JAR_PACKAGE = "{module.PACKAGE}"' in helper
    assert f'_JAR_NAME = "{module.JAR.removesuffix(".jar")}"' in helper
