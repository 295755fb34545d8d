"""The configuration: ``autotest.yml``, read strictly into a frozen value.

The command line takes precedence over the file, and the file over defaults; ``commands/request_parsing`` decides that.
"""

from ci_autotest.config.file_reader import (
    decode,
    find,
    json_schema,
    parse,
    read,
)
from ci_autotest.config.quantity_text import (
    duration_s,
    size_bytes,
)
from ci_autotest.config.validation import (
    check,
)
from ci_autotest.config.values import (
    AT_MOST,
    BUILT_IN,
    COMPILE_OPTIONS,
    DEVICES,
    EXPORT_OPTIONS,
    FILE_NAME,
    GRAPHS,
    SEEDS,
    SHAPES,
    BackendName,
    Candidate,
    Compat,
    Config,
    Device,
    Known,
    OpInfo,
    OpOverride,
    Reference,
    Section,
    ToleranceRule,
    chosen,
    named_by,
    of_reference,
    shapes_of,
)

__all__ = [
    "AT_MOST",
    "BUILT_IN",
    "COMPILE_OPTIONS",
    "DEVICES",
    "EXPORT_OPTIONS",
    "FILE_NAME",
    "GRAPHS",
    "SEEDS",
    "SHAPES",
    "BackendName",
    "Candidate",
    "Compat",
    "Config",
    "Device",
    "Known",
    "OpInfo",
    "OpOverride",
    "Reference",
    "Section",
    "ToleranceRule",
    "check",
    "chosen",
    "decode",
    "duration_s",
    "find",
    "json_schema",
    "named_by",
    "of_reference",
    "parse",
    "read",
    "shapes_of",
    "size_bytes",
]
