"""The documentation in a browser: three real pages, built as `make docs` builds all of them, looked at by Chromium."""

import shutil
import subprocess
import sys

import pytest

from ..browser import Browser, background, needs_chromium
from ..pages import ROOT

PAGES = ("notation", "two_track")
INDEX = "# unstraggle\n\n```{toctree}\n:caption: Research\n\n" + "\n".join(PAGES) + "\n```\n"
IN_SIGHT = "(e => e && (r => r.width > 50 && r.height > 10 && r.left >= 0 && r.right <= 1280)(e.getBoundingClientRect()))"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the pages. Links to pages that are left out are the only warnings."""
    for needed in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(needed, reason=f"no {needed} here: pip install -c constraints.txt -e '.[docs]'")
    source = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "docs/_static", source / "_static")
    for page in ("conf.py", *(f"{page}.md" for page in PAGES)):
        shutil.copy(ROOT / "docs" / page, source / page)
    (source / "index.md").write_text(INDEX)
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(source), str(source / "html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "xref_missing" not in line] == []
    return source / "html"


@needs_chromium
def test_navigation_search_formulas_and_the_dark(site):
    with Browser() as browser:
        browser.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
        browser.open((site / "two_track.html").as_uri())
        for what in ("input[name=q]", ".sidebar-tree a[href='notation.html']", ".sidebar-tree .current"):
            assert browser.value(f'{IN_SIGHT}(document.querySelector("{what}"))'), what
        assert min(background(browser)) > 200
        for formula in ("math[display=block] mfrac", "math[display=block] munder, math[display=block] munderover", "p math"):
            height, text = browser.value(
                f"(e => [e.getBoundingClientRect().height, document.body.innerText])(document.querySelector('{formula}'))"
            )
            assert height > 8 and "\\frac" not in text and "$" not in text, formula
        browser.open((site / "notation.html").as_uri(), scheme="dark")
        assert max(background(browser)) < 60
        assert all(request.startswith(("file:", "data:")) for request in browser.requests)  # nothing from other sites
        assert browser.complaints == []
