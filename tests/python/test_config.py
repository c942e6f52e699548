"""`lakemark.toml` in Python: names in the place of paths, settings of sessions, and errors that name the line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakemark

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Judged


@pytest.fixture
def file(plain: Judged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "lakemark.toml"
    file.write_text(
        f'[tables]\norders = "{plain.folder}"\n[tables.beside]\npath = "{plain.folder}"\nstore = "indexes"\n'
        '[tables.lost]\npath = "nowhere"\nprofile = "nobody"\n[settings]\n"lakemark.use_index" = false\n'
    )
    monkeypatch.setenv("LAKEMARK_CONFIG", str(file))
    return file


def test_a_name_stands_for_a_path_and_its_store(file: Path, plain: Judged) -> None:
    orders, beside = lakemark.Table("orders"), lakemark.Table("beside")
    assert orders.count("city = 'Oslo'") == beside.count("city = 'Oslo'") == plain.count("city = 'Oslo'")
    beside.create_index("city", using="bitmap", progress=False)
    assert (file.parent / "indexes").is_dir()
    assert not (plain.folder / "_lakemark").exists()
    # What is said here counts over what is written there.
    assert list(lakemark.Table("beside", store=file.parent / "other").indexes) == []


@pytest.mark.usefixtures("file")
def test_a_session_knows_the_names_and_has_the_settings(plain: Judged) -> None:
    session = lakemark.connect()
    counted = session.sql("SELECT count(*) AS n FROM orders WHERE city = 'Rom'").to_arrow()
    assert counted["n"].to_pylist() == [plain.count("city = 'Rom'")]
    setting = "SELECT value FROM information_schema.df_settings WHERE name LIKE '%use_index'"
    assert session.sql(setting).to_arrow()["value"].to_pylist() == ["false"]
    assert session.table("beside", name="b").count() == 4000
    # A session may have another table under a name.
    session.register("orders", pa.table({"id": [7]}))
    assert session.sql("SELECT id FROM orders").to_arrow()["id"].to_pylist() == [7]
    assert session.sql("SELECT count(*) AS n FROM b").to_arrow()["n"].to_pylist() == [4000]
    with pytest.raises(lakemark.InvalidInputError, match="there is no profile nobody"):
        session.sql("SELECT id FROM lost").to_arrow()


def test_what_is_wrong_is_named_with_its_line(file: Path, plain: Judged) -> None:
    with pytest.raises(lakemark.NotFoundError, match=r"no table order: no such path, and .* has beside, lost, orders"):
        lakemark.Table("order")
    with pytest.raises(lakemark.InvalidInputError, match=r"lakemark.toml:6: there is no profile nobody"):
        lakemark.Table("lost")
    with pytest.raises(lakemark.InvalidInputError, match="there is no profile other"):
        lakemark.Table(plain.folder, profile="other")
    file.write_text('[tables]\norders = 3\n[profiles.p]\naws_secret_access_key = "hidden"\n')
    for opened in (lambda: lakemark.Table(plain.folder), lakemark.connect):
        with pytest.raises(lakemark.InvalidInputError, match=r"lakemark.toml:2: tables.orders takes") as raised:
            opened()
        assert "hidden" not in str(raised.value)
