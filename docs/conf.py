"""What Sphinx is to know of the site; `make docs` builds it."""

from replkernel import __version__

project = "replkernel"
author = "the replkernel authors"
project_copyright = f"2026, {author}"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["attrs_inline"]  # A picture for light pages and one for dark ones.
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
nitpick_ignore_regex = [("py:.*", ".*")]

html_theme = "pydata_sphinx_theme"
html_title = "replkernel"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
