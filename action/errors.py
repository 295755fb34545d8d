"""The one error with which a step of the action fails."""


class StepError(Exception):
    """Fail a step with a message that says what is wrong and what to do."""


def refuse(message: str, *, when: bool) -> None:
    """Fail the step if ``when`` holds."""
    if when:
        raise StepError(message)
