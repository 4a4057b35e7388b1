"""Sphinx's configuration of the documentation site; build.py lays the pages out and calls it."""

project = "Netfold"
html_title = "Netfold"
extensions = ["myst_parser"]
root_doc = "index"
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_theme_options = {
    "sidebar_hide_name": False,
    "light_css_variables": {"color-brand-primary": "#0b6e8f", "color-brand-content": "#0b6e8f"},
    "dark_css_variables": {"color-brand-primary": "#5cc4e6", "color-brand-content": "#5cc4e6"},
}
myst_heading_anchors = 6  # the anchors that GitHub makes, which the documents link
myst_enable_extensions = ["html_image"]
highlight_language = "none"
pygments_style = "friendly"
pygments_dark_style = "github-dark"
