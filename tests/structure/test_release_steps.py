"""`release/build` with tools that pretend: what it calls and leaves in dist/, and that it goes on where it stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each writes down how it was called, and leaves what the real one would leave.
TOOLS = {
    "cargo": """
case $1 in
  zigbuild)
    [ ! -e "$FAKES/broken" ] || exit 101
    target=$(sed -n 's/.*--target \\([^ ]*\\)\\.2\\.28.*/\\1/p' <<<"$*")
    mkdir -p "$CARGO_TARGET_DIR/$target/dist"
    cd "$CARGO_TARGET_DIR/$target/dist"
    for name in lakemark liblakemark_jni.so liblakemark_python.so; do echo "$target" >"$name"; done ;;
  package)
    mkdir -p "$CARGO_TARGET_DIR/package"
    echo crate >"$CARGO_TARGET_DIR/package/lakemark-format-0.1.0.crate" ;;
  cyclonedx) for name in cli python jni; do echo '{}' >"$name/lakemark-$name.cdx.json"; done ;;
esac""",
    "maturin": """
out=$(sed -n 's/.*--out \\([^ ]*\\).*/\\1/p' <<<"$*")
mkdir -p "$out"
if [ "$1" = sdist ]; then echo source >"$out/lakemark-0.1.0.tar.gz"; exit; fi
machine=$(sed -n 's/.*--target \\([a-z0-9_]*\\)-.*/\\1/p' <<<"$*")
echo wheel >"$out/lakemark-0.1.0-cp310-abi3-manylinux_2_28_$machine.whl\"""",
    "mvn": """
build=$(sed -n 's/.*-Dlakemark.build.dir=\\([^ ]*\\).*/\\1/p' <<<"$*")
mkdir -p "$build"
case "$*" in
  *deploy*)
    cd "$build"
    python -c "import zipfile; zipfile.ZipFile('lakemark-spark.jar', 'w').writestr('a', 'a')" ;;
  *makeBom*) echo '{}' >"$build/lakemark-spark.cdx.json" ;;
esac""",
    "readelf": """
case $1 in
  --dynamic) echo " 0x1 (NEEDED)  Shared library: [libc.so.6]"; cat "$FAKES/needed" 2>/dev/null || true ;;
  *) printf 'Name: GLIBC_2.2.5\\nName: GLIBC_2.28\\n' ;;
esac""",
    "abi3audit": "",
    "docker": "exit 1",
    "pip": "",
    "podman": "exit 1",
    "rustup": "",
}


class Release:
    """A clone of the checkout with the scripts of the working tree, and tools that pretend."""

    def __init__(self, folder: Path) -> None:
        self.fakes, self.cache, self.checkout = folder / "fakes", folder / "cache", folder / "checkout"
        clone: list[str | Path] = ["git", "clone", "--quiet", ROOT, self.checkout]
        subprocess.run(clone, check=True)
        for name in ("release", ".ci"):
            shutil.copytree(ROOT / name, self.checkout / name, dirs_exist_ok=True)
        identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        add = ["git", "add", "--all"]
        subprocess.run(add, cwd=self.checkout, check=True)
        commit = ["git", *identity, "commit", "--quiet", "--allow-empty", "--message", "scripts"]
        subprocess.run(commit, cwd=self.checkout, check=True)
        environment = self.cache / "release" / "venv" / "bin"
        tools = self.cache / "tools" / "bin"
        for place in (self.fakes, environment, tools):
            place.mkdir(parents=True)
        for name, text in TOOLS.items():
            self.tool(environment / name, f'echo "{name} $*" >>"$FAKES/log"\n{text}')
        self.tool(tools / "cargo-cyclonedx", "echo cargo-cyclonedx 0.5.9")
        (environment / "python").symlink_to(sys.executable)

    @staticmethod
    def tool(path: Path, text: str) -> None:
        path.write_text(f"#!/usr/bin/env bash\nset -euo pipefail\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def build(self, *machines: str) -> subprocess.CompletedProcess[str]:
        (self.fakes / "log").write_text("")
        variables = {**os.environ, "LAKEMARK_CACHE": str(self.cache), "FAKES": str(self.fakes)}
        command = [self.checkout / "release" / "build", *machines]
        return subprocess.run(command, env=variables, check=False, capture_output=True, text=True)

    def calls(self) -> list[str]:
        return (self.fakes / "log").read_text().splitlines()

    def made(self) -> list[str]:
        dist = self.checkout / "dist"
        return sorted(path.relative_to(dist).as_posix() for path in dist.rglob("*") if path.is_file())


@pytest.fixture
def release(tmp_path: Path) -> Release:
    return Release(tmp_path)


def test_both_machines_are_built_and_everything_has_a_checksum(release: Release) -> None:
    done = release.build()
    assert done.returncode == 0, done.stderr
    zig = [call for call in release.calls() if call.startswith("cargo zigbuild")]
    assert [call.rsplit(" ", 1)[1] for call in zig] == [
        "x86_64-unknown-linux-gnu.2.28",
        "aarch64-unknown-linux-gnu.2.28",
    ]
    assert all("--workspace" in call and "--profile dist" in call for call in zig)
    assert release.made() == [
        "SHA256SUMS",
        "bin/lakemark-0.1.0-linux-aarch64.tar.gz",
        "bin/lakemark-0.1.0-linux-x86_64.tar.gz",
        "container/Containerfile",
        "crates/lakemark-format-0.1.0.crate",
        "python/lakemark-0.1.0-cp310-abi3-manylinux_2_28_aarch64.whl",
        "python/lakemark-0.1.0-cp310-abi3-manylinux_2_28_x86_64.whl",
        "python/lakemark-0.1.0.tar.gz",
        "python/lakemark_spark-0.1.0-py3-none-any.whl",
        "sbom/lakemark-cli.cdx.json",
        "sbom/lakemark-jni.cdx.json",
        "sbom/lakemark-python.cdx.json",
        "sbom/lakemark-spark.cdx.json",
    ]
    dist = release.checkout / "dist"
    check = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
    subprocess.run(check, cwd=dist, check=True)
    with tarfile.open(dist / "bin" / "lakemark-0.1.0-linux-aarch64.tar.gz") as archive:
        names = {Path(entry.name).name for entry in archive if entry.isfile()}
        assert names == {"lakemark", "LICENSE", "README.md", "CHANGELOG.md"}
        assert {(entry.uid, entry.gid) for entry in archive} == {(0, 0)}


def test_a_release_that_was_stopped_goes_on_where_it_was(release: Release) -> None:
    (release.fakes / "broken").touch()
    assert release.build("amd64").returncode != 0
    assert not (release.checkout / "dist").exists()
    (release.fakes / "broken").unlink()
    assert release.build("amd64").returncode == 0
    # What was done before the failure is not done again.
    assert not [call for call in release.calls() if call.startswith("pip")]
    assert [call for call in release.calls() if call.startswith("cargo zigbuild")]
    before = {path: (release.checkout / "dist" / path).read_bytes() for path in release.made()}
    assert release.build("amd64").returncode == 0
    assert release.calls() == []
    assert {path: (release.checkout / "dist" / path).read_bytes() for path in release.made()} == before
    # Another machine makes it another jar, and leaves the rest.
    assert release.build("amd64", "arm64").returncode == 0
    called = {" ".join(call.split()[:2]) for call in release.calls()}
    assert {"cargo zigbuild", "maturin build"} <= called
    assert not {"cargo package", "maturin sdist"} & called
    assert [call for call in release.calls() if call.startswith("mvn") and call.endswith("deploy")]


def test_a_binary_that_needs_more_than_the_c_library_is_refused(release: Release) -> None:
    (release.fakes / "needed").write_text(" 0x1 (NEEDED)  Shared library: [libssl.so.3]\n")
    done = release.build("amd64")
    assert done.returncode != 0
    assert "links libssl.so.3, which a machine may not have" in done.stderr


def test_an_unknown_machine_is_refused_before_anything_is_done(release: Release) -> None:
    done = release.build("riscv64")
    assert done.returncode != 0
    assert "name amd64 or arm64" in done.stderr
    assert release.calls() == []
