"""The release of this package: what every answer, recording and kept search says it was made by."""

VERSION = "0.2.0"
