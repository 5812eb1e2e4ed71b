"""The package's version, which each request names."""

VERSION = "0.1.0"
