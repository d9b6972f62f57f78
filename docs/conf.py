"""The site of the documentation: `make docs`."""

import re
from importlib import metadata
from pathlib import Path

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


def _plain(app, what, name, obj, options, lines):
    """Docstrings are plain text: marks of reStructuredText in them mean themselves, but for backticks.

    The fields of a class, a line each that begins with their names, are paragraphs.
    """
    made = []
    for line in lines:
        text = re.sub(r"([*|])|(?<=\w)_(?=\W|$)", lambda found: "\\" + found[0], line)
        if what == "class":
            text = text.strip()
            if found := FIELD.match(text):
                made.append("")
                text = f"**{found[0][:-2]}**: {text[found.end() :]}"
        made.append(text)
    lines[:] = made


def setup(app):
    app.connect("source-read", _linked)
    app.connect("autodoc-process-docstring", _plain, priority=400)  # napoleon's is at 500
