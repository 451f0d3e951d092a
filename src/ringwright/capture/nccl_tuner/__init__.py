"""The NCCL tuner plug-in: C source that ships with the package; it follows a table that ``exports`` writes."""

from ringwright.capture.nccl_tuner.build import TUNER_FILE_NAME, build_tuner, tuner_environment

__all__ = ["TUNER_FILE_NAME", "build_tuner", "tuner_environment"]
