"""How the pages are built: `tox -e docs`."""

project = "Accelerator device manager"
author = "The device manager's authors"
extensions = ["myst_parser"]
exclude_patterns = ["_build", "changes.d"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "alabaster"
html_title = project
