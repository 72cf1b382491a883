"""Split parallel text into train, dev and test without common lines, and audit splits."""

from dana.core.studies import Study

HELP = "Split parallel text into train, dev and test without common lines, or audit existing splits"
STUDY = Study("splits", commands={"splits": (HELP, f"{__name__}.command:add_splits")})
