"""TACCL communication sketches, as ``ringwright.sketches`` reads them: algorithms take such files too, and import no source."""

from ringwright.sketches import Sketch, parse_sketch, read_sketch

__all__ = ["Sketch", "parse_sketch", "read_sketch"]
