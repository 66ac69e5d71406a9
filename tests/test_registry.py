import pytest

from explainfix.registry import Registry, unknown


def test_a_name_is_given_once():
    registry: Registry[int] = Registry("thing", "list things")
    registry.register("one")(1)
    with pytest.raises(ValueError, match="thing 'one' is registered already"):
        registry.register("one")(2)
    assert registry["one"] == 1


def test_wrong_names_are_answered_with_near_misses():
    registry: Registry[int] = Registry("thing", "list things")
    registry["first"] = 1
    with pytest.raises(ValueError, match=r"'frist'.*did you mean 'first'.*list things shows all"):
        registry.find("frist")


def test_without_near_misses_a_short_list_is_shown_whole():
    assert "choose from 'red', 'green'" in str(unknown("colour", "?", ["red", "green"]))


def test_a_long_list_is_not_shown():
    assert "'n7'" not in str(unknown("name", "?", [f"n{i}" for i in range(100)]))
