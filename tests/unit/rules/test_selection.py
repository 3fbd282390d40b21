"""Which devices a collector process touches."""

import pytest

from devicemanager.model.accelerator import Card, DeviceKey
from devicemanager.rules.selection import Selection

PARTITION = Card(0, "MIG-1", parent="GPU-0", profile="1g.10gb")
OTHER = Card(0, "MIG-2", parent="GPU-0", profile="1g.10gb")


def keys(*texts: str) -> frozenset[DeviceKey]:
    return frozenset(map(DeviceKey.parse, texts))


def test_everything_is_selected_unless_told_otherwise() -> None:
    assert all(device in Selection() for device in (Card(0), Card(1, "GPU-1"), PARTITION))


def test_a_card_is_skipped_by_its_index_or_by_its_id() -> None:
    assert Card(1) not in Selection(skip=keys("index:1"))
    assert Card(0, "GPU-1") not in Selection(skip=keys("GPU-1"))
    assert Card(0, "GPU-2") in Selection(skip=keys("GPU-1"))
    assert Card(0) in Selection(skip=keys("GPU-1"))


def test_what_is_skipped_is_skipped_also_if_it_is_named() -> None:
    assert Card(1) not in Selection(skip=keys("index:1"), only=keys("index:1"))


def test_an_assumed_id_counts_until_the_card_is_identified() -> None:
    """Another card that takes the index of a skipped one is not skipped."""
    selection = Selection(skip=keys("GPU-1"), assumed={1: "GPU-1"})
    assert Card(1) not in selection
    assert Card(1, "GPU-2") in selection
    assert Card(2, "GPU-1") not in selection


def test_a_partition_is_skipped_by_its_card_and_its_id() -> None:
    selection = Selection(skip=keys("GPU-0/MIG-1"))
    assert PARTITION not in selection
    assert Card(0, "GPU-0") in selection
    assert OTHER in selection
    assert Card(1, "MIG-1", parent="GPU-1") in selection


def test_a_card_alone_brings_its_partitions() -> None:
    for only in (keys("GPU-0"), keys("index:0")):
        selection = Selection(only=only, assumed={0: "GPU-0"})
        assert Card(0) in selection
        assert PARTITION in selection
        assert Card(1) not in selection
        assert Card(1, "MIG-3", parent="GPU-1") not in selection


def test_a_partition_alone_needs_its_card() -> None:
    selection = Selection(only=keys("GPU-0/MIG-1"), assumed={0: "GPU-0"})
    assert Card(0) in selection
    assert Card(1) not in selection
    assert PARTITION in selection
    assert OTHER not in selection


def test_as_flags() -> None:
    selection = Selection(skip=keys("index:3", "GPU-1", "GPU-0/MIG-1"), assumed={1: "GPU-1"})
    assert selection.arguments == ["--skip=GPU-0/MIG-1", "--skip=GPU-1", "--skip=index:3", "--assume=1=GPU-1"]
    assert Selection(only=keys("GPU-1")).arguments == ["--only=GPU-1"]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (DeviceKey(index=3), "index:3"),
        (DeviceKey(id="GPU-1"), "GPU-1"),
        (DeviceKey(id="index:3"), "index%3A3"),
        (DeviceKey(id="MIG-1", parent="GPU-1"), "GPU-1/MIG-1"),
        (DeviceKey(id="MIG-GPU-1/7/0", parent="50%"), "50%25/MIG-GPU-1%2F7%2F0"),
        (DeviceKey(id="%2F"), "%252F"),
    ],
)
def test_a_key_is_spelled_so_that_it_can_be_read(key: DeviceKey, text: str) -> None:
    assert key.text == text
    assert DeviceKey.parse(text) == key


@pytest.mark.parametrize(
    "text", ["", "/", "a/", "/a", "a/b/c", "index:", "index:-1", "index:x", "index:²", "pci:1"]
)
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match="must be index:<n>"):
        DeviceKey.parse(text)
