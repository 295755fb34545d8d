"""``python -m ci_autotest``."""

from ci_autotest.cli import main

if __name__ == "__main__":
    main()
