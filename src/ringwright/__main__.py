"""``python -m ringwright``: the same as the installed command."""

from __future__ import annotations

import sys

from ringwright.cli import main

sys.exit(main())
