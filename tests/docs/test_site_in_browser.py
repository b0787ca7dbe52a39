"""The site works in a browser: search, palettes, copy buttons and tabs, without errors and without other hosts."""

from __future__ import annotations

import functools
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.docs.browser import Browser, program

ROOT = Path(__file__).parents[2]
PAGES = ["index.html", "guide/queries.html", "cookbook/fraud.html", "reference/python.html", "decisions/index.html"]

pytestmark = pytest.mark.slow


class Files(SimpleHTTPRequestHandler):
    """Files of the site, without a log."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the site."""
    if program() is None:
        pytest.skip("no Chromium is installed; on Debian and Ubuntu: apt-get install chromium")
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(directory)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    return directory


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """The address of the site on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def browser(address: str, site: Path, tmp_path: Path) -> Iterator[Browser]:
    executable = program()
    assert executable
    with Browser(executable, tmp_path / "profile") as started:
        started.size(1280, 900)
        yield started
        assert started.problems == []
        own = (address, f"file://{site}", "data:", "blob:", "about:")
        assert [url for url in started.requested if not url.startswith(own)] == []


def test_pages_load_without_errors_in_both_palettes(browser: Browser, address: str) -> None:
    shown = set()
    for scheme, label in (("default", "dark"), ("slate", "light")):
        for page in PAGES:
            browser.open(f"{address}/{page}")
            assert browser.run("document.body.getAttribute('data-md-color-scheme')") == scheme, page
            assert browser.run("document.querySelector('h1') !== null")
            picture = browser.screenshot()
            assert struct.unpack(">II", picture[16:24]) == (1280, 900)
            shown.add(picture)
        browser.run(f"document.querySelector('label[title=\"Switch to {label} mode\"]').click()")
        browser.wait(f"document.body.getAttribute('data-md-color-scheme') !== '{scheme}'")
    assert len(shown) == 2 * len(PAGES)


def search(browser: Browser, text: str, page: str) -> None:
    """Search for a text, until the results have a page. They change while the text is being typed."""
    browser.run("document.querySelector('.md-search__input').focus()")
    browser.type(text)
    links = "[...document.querySelectorAll('.md-search-result__link')]"
    browser.wait(f"{links}.some(link => link.getAttribute('href').includes({json.dumps(page)}))")


def test_a_search_finds_the_page(browser: Browser, address: str) -> None:
    browser.open(f"{address}/index.html")
    search(browser, "reciprocal rank fusion", "guide/search.html")


def test_a_search_works_in_pages_that_are_opened_as_files(browser: Browser, site: Path) -> None:
    browser.open(f"file://{site}/guide/search.html")
    search(browser, "fraud rings", "cookbook/fraud.html")


def test_copied_examples_have_no_prompts_and_no_output(browser: Browser, address: str) -> None:
    browser.open(f"{address}/start.html")
    browser.run("document.addEventListener('copy', () => { window.copied = getSelection().toString() })")
    for language, expected in (
        ("console", "omnigraph init people.omni --schema people.pg\nomnigraph load people.omni --data people.ndjson"),
        ("pycon", 'import omnigraph\ngraph = omnigraph.init("people.omni", "people.pg")\ngraph.load("people.ndjson"'),
    ):
        button = f"document.querySelector('.language-{language} .md-code__button, .language-{language} .md-clipboard')"
        browser.wait(f"{button} !== null")
        browser.run(f"window.copied = null; {button}.click()")
        assert browser.wait("window.copied").startswith(expected)
        assert "initialized" not in browser.run("window.copied")


def test_one_click_shows_the_same_tab_of_every_example(browser: Browser, address: str) -> None:
    browser.open(f"{address}/cookbook/fraud.html")
    labels = "[...document.querySelectorAll('.tabbed-labels label')].filter(label => label.innerText === 'Python')"
    sets = browser.run("document.querySelectorAll('.tabbed-set').length")
    assert sets == browser.run(f"{labels}.length") > 5
    browser.run(f"{labels}[0].click()")
    chosen = "[...document.querySelectorAll('.tabbed-set')].filter(set => set.querySelectorAll('input')[1].checked)"
    browser.wait(f"{chosen}.length === {sets}")


def test_diagrams_have_the_colours_of_the_palette(browser: Browser, address: str) -> None:
    browser.open(f"{address}/how-it-works.html")
    colour = "getComputedStyle(document.querySelector('.diagram text')).fill"
    light = browser.run(colour)
    browser.run("document.querySelector('label[title=\"Switch to dark mode\"]').click()")
    browser.wait(f"{colour} !== '{light}'")


def test_pages_fit_a_phone(browser: Browser, address: str) -> None:
    browser.size(390, 844)
    for page in PAGES:
        browser.open(f"{address}/{page}")
        assert browser.run("document.documentElement.scrollWidth") <= 390, page


def test_tables_fit_the_window(browser: Browser, address: str) -> None:
    browser.size(1400, 900)
    tables = "[...document.querySelectorAll('.md-typeset__scrollwrap')]"
    wide = f"{tables}.filter(table => table.scrollWidth > table.clientWidth)"
    for page in ("index.html", "reference/settings.html", "reference/python.html", "guide/policies.html"):
        browser.open(f"{address}/{page}")
        browser.wait(f"{tables}.length > 0")
        assert browser.run(f"{wide}.length") == 0, page
