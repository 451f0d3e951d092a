"""TACCL communication sketches, as ``model.sketches`` reads them: algorithms take such files too, and import no source."""

from ringwright.model.sketches import Sketch, parse_sketch, read_sketch

__all__ = ["Sketch", "parse_sketch", "read_sketch"]
