"""What callers may pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from limpet.errors import InvalidRequest
from limpet.validate import check_epoch, check_int, check_namespace, check_reason, check_request_id, check_text

CONTROLS = [chr(code) for code in (*range(0x20), 0x7F, *range(0x80, 0xA0))]


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=64))
def test_any_text_without_control_characters(text: str) -> None:
    """Opaque: given back as it came, not parsed, not normalised, not cut."""
    assert check_text(text, "key") is text


@pytest.mark.parametrize(
    "text", ["a", "a" * 256, "é" * 128, "😀" * 64, " ", "a:b", "\u2028", "\u200b", "\xa0", "../../x", "{tag}"]
)
def test_texts_at_the_edge(text: str) -> None:
    """1 to 256 bytes of UTF-8; spaces, separators and braces are no control characters."""
    assert check_text(text, "key") == text


@pytest.mark.parametrize("text", ["", "a" * 257, "é" * 129, "a" + "é" * 128, "😀" * 65])
def test_texts_beyond_the_edge(text: str) -> None:
    """Bytes are counted, not characters; never cut."""
    with pytest.raises(InvalidRequest, match="1 to 256 bytes") as caught:
        check_text(text, "key")
    assert caught.value.field == "key"


@pytest.mark.parametrize("control", CONTROLS, ids=[f"U+{ord(c):04X}" for c in CONTROLS])
@pytest.mark.parametrize("around", ["{}", "a{}b", "é{}"])
def test_every_control_character(control: str, around: str) -> None:
    """C0, DEL and C1, wherever it stands."""
    with pytest.raises(InvalidRequest, match="control character"):
        check_text(around.format(control), "session_id")


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
def test_lone_surrogates(text: str) -> None:
    """They are no UTF-8."""
    with pytest.raises(InvalidRequest, match="surrogate"):
        check_text(text, "key")


@pytest.mark.parametrize("value", [None, 1, 1.5, True, b"a", ["a"], {"a": 1}])
def test_what_is_no_string(value: object) -> None:
    """Refused, with the type that it has."""
    with pytest.raises(InvalidRequest, match=f"not {type(value).__name__}"):
        check_text(value, "key")
    for check in (check_namespace, check_reason, check_request_id):
        with pytest.raises(InvalidRequest):
            check(value)


@pytest.mark.parametrize("name", ["default", "a", "0", "a-b_c", "a" * 63, "9-"])
def test_namespaces(name: str) -> None:
    """[a-z0-9][a-z0-9_-]{0,62}."""
    assert check_namespace(name) == name


@pytest.mark.parametrize("name", ["", "A", "-a", "_a", "a" * 64, "a b", "a:b", "a\n", "é", "a}", "٣"])
def test_other_namespaces(name: str) -> None:
    """Nothing that could break a key name, not even a line break at the end."""
    with pytest.raises(InvalidRequest) as caught:
        check_namespace(name)
    assert caught.value.field == "namespace"


@pytest.mark.parametrize("reason", ["new", "switch", "worker_lost", "a.b-c", "0", "a" * 64])
def test_reasons(reason: str) -> None:
    """They become metric labels and event fields."""
    assert check_reason(reason) == reason


@pytest.mark.parametrize("reason", ["", "New", ".a", "-a", "a" * 65, "a b", "a\n", "é"])
def test_other_reasons(reason: str) -> None:
    """1 to 64 of a-z0-9_.-."""
    with pytest.raises(InvalidRequest) as caught:
        check_reason(reason)
    assert caught.value.field == "reason"


@given(st.integers(), st.integers(-5, 5), st.integers(-5, 5))
def test_integers_within(value: int, low: int, high: int) -> None:
    """Inclusive on both sides."""
    if low <= value <= high:
        assert check_int(value, "n", low, high) == value
    else:
        with pytest.raises(InvalidRequest, match=f"from {low} to {high}"):
            check_int(value, "n", low, high)


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None])
def test_no_integers(value: object) -> None:
    """A bool and a whole float are none."""
    with pytest.raises(InvalidRequest):
        check_int(value, "n", 0, 9)


def test_epochs() -> None:
    """1 to 2^53 - 1: what a double holds exactly, since the scripts count in doubles."""
    assert check_epoch(1, "epoch") == 1
    assert check_epoch(2**53 - 1, "epoch") == 2**53 - 1
    for value in (0, -1, 2**53, True):
        with pytest.raises(InvalidRequest):
            check_epoch(value, "seen_epoch")
