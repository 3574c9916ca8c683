"""The site of these pages: `./dev docs` makes it with Sphinx. Nothing here and in what it makes needs a network."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

project = "PCCL"
author = "the PCCL authors"
version = release = (Path(__file__).resolve().parents[1] / "VERSION").read_text().strip()

extensions = ["myst_parser", "sphinx.ext.autodoc"]
templates_path: list[str] = []
exclude_patterns = ["requirements.txt"]
root_doc = "index"

# Markdown. Headings can be linked to as in any other viewer of these files.
myst_heading_anchors = 4
myst_links_external_new_tab = False

# The reference from docstrings.
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autoclass_content = "both"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
add_module_names = False

html_theme = "furo"
html_title = f"PCCL {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
highlight_language = "text"
pygments_style = "friendly"
pygments_dark_style = "native"


def _files_beside_the_pages(app: Any, page: str, source: list[str]) -> None:
    """Links to files of the tree outside of this folder: the site brings a copy of them."""
    source[0] = re.sub(r"\]\((\.\./[^)#]+\.md)\)", r"](path:\1)", source[0])


def _without_torch(app: Any, page: str, source: list[str]) -> None:
    """What derives from classes of torch cannot be imported where it is not installed."""
    if page in ("torch-api", "diloco-api") and importlib.util.find_spec("torch") is None:
        left_out = "This site was made without torch, which the docstrings of this package need."
        source[0] = re.sub(r"```\{eval-rst\}.*?```", left_out, source[0], flags=re.DOTALL)


def setup(app: Any) -> dict[str, Any]:
    app.connect("source-read", _files_beside_the_pages)
    app.connect("source-read", _without_torch)
    return {"parallel_read_safe": True}
