from __future__ import annotations

import pytest

from ci_autotest.errors import AuthorError, UsageError
from ci_autotest.loader.declaration import loader_declared
from ci_autotest.loader.source import factory_file, factory_of, factory_options

GIVEN = {"workers": 4, "epochs": 2, "ranks": 1, "id": None}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"workers": 1}, "loadertest(workers=1) is not a number of worker processes. Write 2 to 64."),
        ({"epochs": 0}, "loadertest(epochs=0) is not a number of epochs. Write 1 to 16."),
        ({"ranks": True}, "loadertest(ranks=True) is not a number of ranks. Write 1 to 16."),
        ({"workers": print}, "@loadertest was given the function itself. Write @loadertest() with parentheses."),
        (
            {"worker": 3},
            "loadertest() has no option 'worker'. Did you mean workers? It has workers, epochs, ranks, id.",
        ),
        ({"id": " "}, "loadertest(id=' ') names no test. Write a text that no other test has."),
    ],
)
def test_loader_declared__wrong_option__says_what_to_write(wrong, message):
    with pytest.raises(AuthorError) as caught:
        loader_declared(print, {**GIVEN, **wrong})

    assert str(caught.value) == message


def test_factory_file__is_read_back():
    file = factory_file("data.train:Loaders.make", workers=2, epochs=3, ranks=1)

    assert factory_of(file) == "data.train:Loaders.make"
    assert factory_options(file) == {"workers": 2, "epochs": 3, "ranks": 1, "id": "data.train:Loaders.make"}


@pytest.mark.parametrize(
    ("factory", "workers", "message"),
    [
        ("data", 4, "'data' names no function. Write MODULE:FACTORY, such as mypackage.data:make_loader."),
        ("data:", 4, "'data:' names no function. Write MODULE:FACTORY, such as mypackage.data:make_loader."),
        ("data:make", 65, "loader(workers=65) is not a number of worker processes. Write 2 to 64."),
    ],
)
def test_factory_file__wrong__is_a_usage_error(factory, workers, message):
    with pytest.raises(UsageError) as caught:
        factory_file(factory, workers=workers, epochs=2, ranks=1)

    assert str(caught.value) == message
