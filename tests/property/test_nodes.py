"""Whatever a Node holds, what is read of it can be dialled, or is refused in our own words."""

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.errors import DocumentError, FetchError
from devicemanager.wire import nodes
from devicemanager.wire.nodes import AddressType, Node, NodeAddress
from devicemanager.worker.direct_kubelets import summary_urls

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "status",
                    "addresses",
                    "type",
                    "address",
                    "daemonEndpoints",
                    "kubeletEndpoint",
                    "Port",
                    "capacity",
                    "cpu",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
ADDRESSES = st.text(max_size=20) | st.ip_addresses().map(str) | st.from_regex(r"[a-zA-Z0-9.:@/?#%\[\]-]{1,20}")


@given(st.binary(max_size=64) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_node_or_refused(body: bytes) -> None:
    with suppress(DocumentError):
        node = nodes.parse(body)
        assert node.kubelet_port is None or 1 <= node.kubelet_port <= 65535
        assert node.cpu_nanocores is None or 1 <= node.cpu_nanocores <= 2**63 - 1


@given(ADDRESSES, st.none() | st.integers(1, 65535))
def test_an_address_never_changes_anything_but_the_host(address: str, port: int | None) -> None:
    node = Node((NodeAddress("InternalIP", address),), port)
    with suppress(FetchError):
        (url,) = summary_urls(node, [AddressType.INTERNAL_IP])
        assert (url.scheme, url.port, url.path) == ("https", port or 10250, "/stats/summary")
        assert (url.user, url.password, url.query_string, url.fragment) == (None, None, "", "")
        assert url.host
