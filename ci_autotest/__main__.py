"""Entry point of ``python -m ci_autotest`` and of the program ``ci-autotest``."""

from ci_autotest.commands.signals import end_at_once


def main() -> None:
    """Run the command line; an interrupt during the import ends it with a one-line message."""
    end_at_once()
    from ci_autotest.cli import main as run  # noqa: PLC0415 - only after the signal handlers are installed

    run()


if __name__ == "__main__":
    main()
