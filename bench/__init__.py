"""Measurements. Speed is measured here, never by a timed test, and stated as ratios within one run."""
