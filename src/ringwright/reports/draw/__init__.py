"""Geometry of pictures: charts, machines, rings, trees and timelines as numbers for SVG."""
