"""The site of the documentation is built without a warning, has every page, and its pages of methods are of today."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import tunescope
from scripts import method_pages
from tunescope.methods.text_form import methods

ROOT = Path(__file__).resolve().parents[2]


class Links(HTMLParser):
    """What a page links to, and the places in it that can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.places: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.links |= {given[name] for name in ("href", "src") if given.get(name)}
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}


def test_the_pages_of_methods_are_of_today(monkeypatch):
    monkeypatch.setattr("sys.argv", ["method_pages", "--check"])
    with pytest.raises(SystemExit) as end:
        method_pages.main()
    assert end.value.code == 0, "run: python -m scripts.method_pages"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="the site needs the extra 'docs'")
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-d", folder / "trees"]
    done = subprocess.run([*words, ROOT / "docs", folder / "html"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_is_in_it_and_every_link_within_it_leads_somewhere(site):
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert {name for name in pages if "_build" not in name.parts} <= {
        path.relative_to(site) for path in site.rglob("*.html")
    }
    known = {path: Links(path) for path in site.rglob("*.html") if "_modules" not in path.parts}
    lost = []
    for path, found in known.items():
        for link in found.links:
            file, _, place = link.partition("#")
            file = file.partition("?")[0]
            if re.match(r"[a-z]+:", link) or link.startswith("//"):
                continue
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (place and target in known and place not in known[target].places):
                lost.append(f"{path.name}: {link}")
    assert not lost


def test_every_public_name_and_every_method_has_its_place(site):
    places = Links(site / "api.html").places
    assert {f"tunescope.{name}" for name in tunescope.__all__ if name != "__version__"} <= places
    held = {"named_parameters", "parameters", "train", "eval", "registered", "detach"}
    for name, own in (("attached.Attached", {"in_place", "paused"}), ("bank.banked.Banked", {"rows", "artifacts"})):
        name = f"tunescope.attachment.{name}."
        assert {place.removeprefix(name) for place in places if place.startswith(name)} == held | own
    assert {f"{name}.html" for name in methods()} <= {path.name for path in (site / "methods").glob("*.html")}


def test_the_fields_of_settings_and_plans_are_told_as_help_tells_them(site):
    help_told = subprocess.run([sys.executable, "-m", "tunescope", "compare", "--help"], capture_output=True, text=True)
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", (site / "api.html").read_text("utf-8")))
    at = page.index("class tunescope.Settings")
    for part, words in ((page[at:], ("--steps", "--clip", "--patience")), (page[:at], ("--k-shot", "--together"))):
        for option in words:
            line = re.search(rf"{option} [A-Z ]*\W+([a-z].{{20}})", help_told.stdout)
            assert line and f"({option}): {line[1][:15]}" in part, option
