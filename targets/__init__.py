"""A target of your own for `format("eo-target")`: what it has to do. See docs/targets.md."""

from .port import MarkerChanged, NotStaged, Target

__all__ = ["MarkerChanged", "NotStaged", "Target"]
