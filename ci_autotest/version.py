"""The version of the package; defined only here."""

VERSION = "1.0.0"
