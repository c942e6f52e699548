"""Packs the jar of the Spark connector as a package for Python of its own, which has nothing but the jar.

    python release/jar_wheel.py JAR FOLDER

writes FOLDER/lakemark_spark-VERSION-py3-none-any.whl. Whoever needs no Spark does not load the jar, and
`lakemark.spark` finds it where it is installed. The same jar gives the same bytes: times are SOURCE_DATE_EPOCH, or the
first that a ZIP file knows.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import sys
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "lakemark_spark"
JAR = "lakemark-spark.jar"
EARLIEST = (1980, 1, 1, 0, 0, 0)
MODULE = '''"""The Spark connector of Lakemark: a jar, which `lakemark.spark.configure` names to Spark."""

__version__ = "{version}"
'''
METADATA = """Metadata-Version: 2.4
Name: lakemark-spark
Version: {version}
Summary: The Spark connector of Lakemark: indexes beside Parquet and Delta tables, for Spark 4.1 and later
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.10
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/markdown

# lakemark-spark

The jar of the Spark connector of Lakemark, with its native libraries for Linux on x86-64 and arm64.
`pip install lakemark lakemark-spark`, and then in Python:

```python
import lakemark.spark
from pyspark.sql import SparkSession

spark = lakemark.spark.configure(SparkSession.builder).getOrCreate()
```
"""
WHEEL = """Wheel-Version: 1.0
Generator: release/jar_wheel.py
Root-Is-Purelib: true
Tag: py3-none-any
"""


def version() -> str:
    """The release, of which the workspace of the crates is the one source."""
    manifest = (ROOT / "rust" / "Cargo.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "([^"]+)"', manifest, re.MULTILINE)
    if found is None:
        sys.exit("error: rust/Cargo.toml names no version")
    return found[1]


def entry(name: str) -> zipfile.ZipInfo:
    """The entry of a file, with a time that does not depend on when it is packed."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    year, month, day, hour, minute, second, *_ = time.gmtime(seconds)
    made = zipfile.ZipInfo(name, max((year, month, day, hour, minute, second), EARLIEST))
    made.external_attr = 0o644 << 16
    # The jar is compressed already.
    made.compress_type = zipfile.ZIP_STORED if name.endswith(".jar") else zipfile.ZIP_DEFLATED
    return made


def pack(jar: Path, folder: Path) -> Path:
    """Writes the wheel of a jar, and gives its path."""
    release = version()
    about = f"{PACKAGE}-{release}.dist-info"
    files = {
        f"{PACKAGE}/__init__.py": MODULE.format(version=release).encode(),
        f"{PACKAGE}/{JAR}": jar.read_bytes(),
        f"{about}/METADATA": METADATA.format(version=release).encode(),
        f"{about}/WHEEL": WHEEL.encode(),
        f"{about}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={digest},{len(content)}")
    files[f"{about}/RECORD"] = "\n".join([*lines, f"{about}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{PACKAGE}-{release}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(entry(name), content)
    return wheel


def main() -> None:
    """Packs the jar that the arguments name."""
    if len(sys.argv) != 3:  # noqa: PLR2004 - the two arguments
        sys.exit("usage: jar_wheel.py JAR FOLDER")
    jar = Path(sys.argv[1])
    if not zipfile.is_zipfile(jar):
        sys.exit(f"error: {jar} is no jar: build it first (`make jar`)")
    sys.stdout.write(f"{pack(jar, Path(sys.argv[2]))}\n")


if __name__ == "__main__":
    main()
