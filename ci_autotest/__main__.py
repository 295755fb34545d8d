"""``python -m ci_autotest``, and the program ``ci-autotest``."""

from ci_autotest.commands.signals import end_at_once


def main() -> None:
    """Run the command line; what interrupts it while it is imported ends it with a sentence."""
    end_at_once()
    from ci_autotest.cli import main as run  # noqa: PLC0415 - signals can be answered by now

    run()


if __name__ == "__main__":
    main()
