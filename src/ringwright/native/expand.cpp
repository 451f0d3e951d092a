// Python bindings of the greedy matching of chunks to arcs; algorithms/synthesis/expand/_loop.py says what it means.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <utility>

#include "checks.hpp"
#include "columns.hpp"
#include "matching.hpp"

namespace nb = nanobind;
using namespace ringwright;

namespace {

constexpr size_t kMostRanks = size_t{1} << 22, kMostDeliveries = size_t{1} << 32;

void check(const Network& net, const Wanted& wanted) {
    const size_t p = static_cast<size_t>(net.p), arcs = net.src.size, resources = net.ps_per_byte.size;
    require(net.dst.size == arcs && net.delay.size == arcs, "arcs: columns of different lengths");
    require(net.latency.size == resources && net.holds.size == resources, "resources: columns of different lengths");
    require_below(net.src, p, "src");
    require_below(net.dst, p, "dst");
    require_cuts(net.hop_starts, arcs, net.hops.size, "hop_starts");
    require_below(net.hops, resources, "hops");
    require_times(net.delay, "delay");
    require_times(net.latency, "latency");
    require_ps_per_byte(net.ps_per_byte, "ps_per_byte");
    const size_t chunks = wanted.root.size;
    require(wanted.target.size == chunks && wanted.size_bytes.size == chunks, "chunks: columns of different lengths");
    require_below(wanted.root, p, "root");
    require_below_or_none(wanted.target, net.p, "target");
    require_times(wanted.size_bytes, "size_bytes");
    bool targets = false;
    for (size_t i = 0; i < chunks; ++i) targets = targets || wanted.target[i] >= 0;
    require(!targets || wanted.far.size == p * p, "far: one row a rank");
    require(wanted.yard.size == 0 || wanted.yard.size == p, "yard: one a rank, or none");
    for (size_t i = 0; i < wanted.yard.size; ++i) require(wanted.yard[i] >= 0 && wanted.yard[i] < net.p, "yard");
    require(p <= kMostRanks && p * chunks <= kMostDeliveries, "p: more ranks or deliveries than can be held");
    // No sum of times overflows: every chunk comes to every rank, each time over the longest route.
    double bytes = 0, slowest = 0, latency = 0, delay = 0, hops = 1;
    for (size_t i = 0; i < chunks; ++i) bytes += static_cast<double>(wanted.size_bytes[i]);
    for (size_t i = 0; i < resources; ++i) slowest = std::max(slowest, net.ps_per_byte[i]);
    for (size_t i = 0; i < resources; ++i) latency = std::max(latency, static_cast<double>(net.latency[i]));
    for (size_t i = 0; i < arcs; ++i) delay = std::max(delay, static_cast<double>(net.delay[i]));
    for (size_t i = 0; i < arcs; ++i) hops = std::max(hops, static_cast<double>(net.hop_starts[i + 1] - net.hop_starts[i]));
    const double each = (latency + 1) * hops + delay;
    const double whole = (bytes * slowest * hops + each * static_cast<double>(chunks + 1)) * static_cast<double>(p);
    require(whole < 1e18, "sizes, rates and latencies: the sum of all times overflows");
}

nb::tuple matched(int32_t p, Input<int32_t> src, Input<int32_t> dst, Input<int64_t> hop_starts, Input<int32_t> hops,
                  Input<int64_t> delay, Input<double> ps_per_byte, Input<int64_t> latency, Input<uint8_t> holds,
                  Input<int32_t> root, Input<int32_t> target, Input<int64_t> size_bytes, Input<int32_t> far,
                  Input<int32_t> yard, int64_t merge, int64_t taper, bool rarest, uint64_t seed) {
    const Network net{p, view(src), view(dst), view(hop_starts), view(hops), view(delay), view(ps_per_byte), view(latency), view(holds)};
    const Wanted wanted{view(root), view(target), view(size_bytes), view(far), view(yard)};
    require(p > 0 && merge > 0 && taper >= 0, "p, merge or taper");
    check(net, wanted);
    Matching matching(net, wanted, merge, taper, rarest, seed);
    {
        nb::gil_scoped_release unlocked;
        matching.run();
    }
    return nb::make_tuple(to_numpy(std::move(matching.arc_of)), to_numpy(std::move(matching.step_of)),
                          to_numpy(std::move(matching.start)), to_numpy(std::move(matching.end)),
                          to_numpy(std::move(matching.piece_starts)), to_numpy(std::move(matching.pieces)));
}

}  // namespace

NB_MODULE(_expand, module) {
    module.doc() = "Greedy matching of chunks to arcs; ringwright.algorithms.synthesis.expand says what it means.";
    module.def("matched", &matched, nb::arg("p"), nb::arg("src"), nb::arg("dst"), nb::arg("hop_starts"), nb::arg("hops"),
               nb::arg("delay"), nb::arg("ps_per_byte"), nb::arg("latency"), nb::arg("holds"), nb::arg("root"),
               nb::arg("target"), nb::arg("size_bytes"), nb::arg("far"), nb::arg("yard"), nb::arg("merge"), nb::arg("taper"), nb::arg("rarest"), nb::arg("seed"));
}
