"""What can go wrong while a report is drawn.

ReportError
├── DocumentError   the document is of another schema, or a part of it has the wrong type
└── AssetError      something the page is built from is not installed
"""

from __future__ import annotations


class ReportError(Exception):
    """Base of every error of this package; the message says what to do next."""


class DocumentError(ReportError):
    """The document cannot be drawn; the message names the part at fault."""


class AssetError(ReportError):
    """A packaged file that the page needs is missing or unusable."""
