"""The site of the documentation: `make docs`."""

import re
from dataclasses import is_dataclass
from importlib import metadata
from pathlib import Path

from tunescope.system.option import options_of

HERE = Path(__file__).resolve().parent
REPORTS = sorted((HERE.parent / "results").glob("*.html"))

project = "tunescope"
author = "the tunescope authors"
release = metadata.version("tunescope")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "tunescope"
html_extra_path = [str(path) for path in REPORTS]  # pages of real runs, beside the site's own
html_show_sphinx = False
html_show_copyright = False
default_role = "code"
autodoc_typehints = "none"  # signatures have them
autodoc_member_order = "bysource"
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]  # a page that is included begins where its reader is


def _linked(app, name, source):
    """Files of the project that pages link to beside them, as pages of the site."""
    source[0] = re.sub(r"\]\(((?:\.\./)*)\.\./CONTRIBUTING\.md", r"](\1contributing.md", source[0])


FIELD = re.compile(r"^[a-z]\w*(, [a-z]\w*)*( and [a-z]\w*)?: ")


def _escaped(line):
    return re.sub(r"([*|])|(?<=\w)_(?=\W|$)", lambda found: "\\" + found[0], line)


def _plain(app, what, name, obj, options, lines):
    """Docstrings are plain text: marks of reStructuredText in them mean themselves, but for backticks.

    The fields of a class, a line each that begins with their names, are paragraphs.
    """
    made = []
    for line in lines:
        text = _escaped(line)
        if what == "class":
            text = text.strip()
            if found := FIELD.match(text):
                made.append("")
                text = f"**{found[0][:-2]}**: {text[found.end() :]}"
        made.append(text)
    lines[:] = made


def _options(app, what, name, obj, options, lines):
    """The fields of a class that are options, each with what --help says of it."""
    known = options_of(obj) if what == "class" and is_dataclass(obj) else ()
    lines += ["", "As options, with the words and defaults of the command line:"] if known else []
    for one in known:
        said = re.sub(r"(?<!\S)(--[a-z-]+)", r"``\1``", _escaped(one.option.help))
        usual = f" Default: {one.default}." if one.option.shows_default and one.default is not False else ""
        lines += ["", f"- **{one.field}** (``{one.names[0]}``): {said}{usual}"]


def setup(app):
    app.connect("source-read", _linked)
    app.connect("autodoc-process-docstring", _plain, priority=400)  # napoleon's is at 500
    app.connect("autodoc-process-docstring", _options, priority=450)
