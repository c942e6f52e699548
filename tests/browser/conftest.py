"""A browser for all tests of this folder, and a tab for each."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from chromium import Chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chromium import Tab


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    browser = Chromium(os.environ["LAKEMARK_CHROMIUM"], tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def tab(browser: Chromium) -> Tab:
    return browser.tab()
