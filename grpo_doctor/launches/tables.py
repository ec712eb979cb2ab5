"""Names of programs, options and files by which a launch is read and judged: `tables.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TABLES: dict[str, Any] = json.loads(Path(__file__).with_name("tables.json").read_bytes())
"""By the module that uses them."""
