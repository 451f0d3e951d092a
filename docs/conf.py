"""Sphinx settings; ``trace_tables`` writes the table reference from the code before the build."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "src"))

import trace_tables  # noqa: E402  the path above comes first

project = "Ringwright"
author = "The Ringwright maintainers"
copyright = author
release = runpy.run_path(str(HERE.parent / "src" / "ringwright" / "ground" / "version.py"))["VERSION"]

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
nb_execution_mode = "off"  # the notebooks hold their outputs; scripts/notebooks writes them, a test holds them to a run
autodoc_typehints_format = "short"
napoleon_use_ivar = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other projects, and of our own rooms, have no page here
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_generated", "template"]
html_theme = "furo"
html_title = "Ringwright"
html_copy_source = False
nitpicky = True


trace_tables.write(HERE / "_generated" / "trace-tables.md")
