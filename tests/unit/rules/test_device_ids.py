"""The forms in which allocators spell an accelerator."""

import pytest

from devicemanager.rules import device_ids
from devicemanager.rules.device_ids import DeviceId

CARD = "GPU-00000001-aaaa-bbbb-cccc-000000000001"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CARD, DeviceId(CARD)),
        (f"{CARD}::3", DeviceId(CARD, replica=True)),
        (
            "MIG-00000000-0000-5000-8000-0000000000a0",
            DeviceId(
                "MIG-00000000-0000-5000-8000-0000000000a0", partition="MIG-00000000-0000-5000-8000-0000000000a0"
            ),
        ),
        (f"MIG-{CARD}/7/0", DeviceId(CARD, partition=f"MIG-{CARD}/7/0")),
        ("nvidia0/gi7", DeviceId("nvidia0/gi7")),
        ("nvidia0", DeviceId("nvidia0")),
        ("0000:3c:00.0", DeviceId("0000:3c:00.0")),
        ("amdgpu_xcp_3", DeviceId("amdgpu_xcp_3")),
        ("slot-9", DeviceId("slot-9")),
        ("", DeviceId("")),
        ("::3", DeviceId("::3")),
        ("MIG-GPU-x/7", DeviceId("MIG-GPU-x/7", partition="MIG-GPU-x/7")),
    ],
)
def test_says_only_what_the_form_says(text: str, expected: DeviceId) -> None:
    assert device_ids.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:3c:00.0", "0000:3c:00.0"),
        ("00000000:3C:00.0", "0000:3c:00.0"),
        ("0000000F:01:00.0", "000f:01:00.0"),
        ("00010000:3c:00.0", "10000:3c:00.0"),
        ("3c:00.0", None),
        ("0000:3c:00.9", None),
        ("slot-9", None),
        (None, None),
    ],
)
def test_pci_addresses_are_told_and_levelled(text: str | None, address: str | None) -> None:
    assert device_ids.pci_address(text) == address


@pytest.mark.parametrize(
    ("text", "provisional"), [("pci:0000:3c:00.0", True), ("index:0", True), (CARD, False), ("", False)]
)
def test_made_up_ids_are_told(text: str, provisional: bool) -> None:
    assert device_ids.is_provisional(text) is provisional
