"""The one place where the version is written."""

VERSION = "1.0.0"
