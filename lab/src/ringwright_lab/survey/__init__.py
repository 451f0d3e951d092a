"""What is held, system by system: what it is, its knobs, what it was seen to do.

The room has the name of the public function ``ringwright.survey``. Called, it is that function (``survey.by_name``), whichever
of the two was loaded first.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A module that is called like the function of its name."""

    @property
    def __wrapped__(self) -> Any:
        from ringwright_lab.survey.entry import survey

        return survey

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self.__wrapped__(*given, **named)


sys.modules[__name__].__class__ = _Room
