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
from ci_autotest.config.validation import (
    check,
    duration_s,
    size_bytes,
)
from ci_autotest.config.values import (
    AT_MOST,
    BUILT_IN,
    FILE_NAME,
    SEEDS,
    Compat,
    Config,
    Known,
    OpInfo,
    OpOverride,
    Reference,
    ToleranceRule,
    chosen,
    named_by,
    of_reference,
    shapes_of,
)

__all__ = [
    "AT_MOST",
    "BUILT_IN",
    "FILE_NAME",
    "SEEDS",
    "Compat",
    "Config",
    "Known",
    "OpInfo",
    "OpOverride",
    "Reference",
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
