"""Networks and groups of ranks for properties of collectives."""

from hypothesis import strategies as st

from planner.cost.collective_times import CollectiveGroup, group
from planner.cost.figures import Network


@st.composite
def networks(draw) -> Network:
    rate = st.floats(1e9, 1e12)
    scaleup = draw(rate)
    return Network(
        accelerators=1024.0,
        domain=float(draw(st.sampled_from([1, 2, 4, 8, 64, 72]))),
        scaleup=scaleup,
        scaleup_reduce=scaleup * draw(st.floats(1.0, 1.5)),
        pair=scaleup / draw(st.floats(1.0, 8.0)),
        mesh=float(draw(st.booleans())),
        bridged=0.0,
        scaleup_latency=draw(st.floats(1e-7, 1e-5)),
        nic=draw(st.floats(1e8, 1e11)),
        nic_latency=draw(st.floats(1e-6, 1e-4)),
        spine=draw(st.floats(0.1, 1.0)),
        leaf=float(draw(st.sampled_from([8, 16, 256, 2048]))),
        base=draw(st.floats(0.0, 2e-5)),
        pipelining=draw(st.floats(0.0, 2.0)),
    )


@st.composite
def groups(draw, network: Network) -> CollectiveGroup:
    return group(network, float(draw(st.integers(1, 512))), float(draw(st.sampled_from([1, 2, 4, 8, 16, 64]))))
