// Python bindings of the greedy matching of chunks to arcs and of list scheduling; algorithms/synthesis/expand/_loop.py and
// algorithms/list_schedule.py say what they mean.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "checks.hpp"
#include "columns.hpp"
#include "listing.hpp"
#include "matching.hpp"

namespace nb = nanobind;
using namespace ringwright;

namespace {

constexpr size_t kMostRanks = size_t{1} << 22, kMostDeliveries = size_t{1} << 32, kMostMoves = size_t{1} << 31;

void check(const Network& net) {
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
}

// No sum of times overflows: so many bytes and messages, one after the other, each over the longest route.
void check_times(const Network& net, double bytes, double messages) {
    double slowest = 0, latency = 0, delay = 0, hops = 1;
    for (size_t i = 0; i < net.ps_per_byte.size; ++i) slowest = std::max(slowest, net.ps_per_byte[i]);
    for (size_t i = 0; i < net.ps_per_byte.size; ++i) latency = std::max(latency, static_cast<double>(net.latency[i]));
    for (size_t i = 0; i < net.src.size; ++i) delay = std::max(delay, static_cast<double>(net.delay[i]));
    for (size_t i = 0; i < net.src.size; ++i) hops = std::max(hops, static_cast<double>(net.hop_starts[i + 1] - net.hop_starts[i]));
    const double whole = bytes * slowest * hops + ((latency + 1) * hops + delay) * messages;
    require(whole < 1e18, "sizes, rates and latencies: the sum of all times overflows");
}

void check(const Network& net, const Wanted& wanted) {
    const size_t p = static_cast<size_t>(net.p);
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
    // Every chunk comes to every rank.
    double bytes = 0;
    for (size_t i = 0; i < chunks; ++i) bytes += static_cast<double>(wanted.size_bytes[i]);
    check_times(net, bytes * static_cast<double>(p), static_cast<double>(chunks + 1) * static_cast<double>(p));
}

void check(const Network& net, const Moves& moves) {
    const size_t each = moves.arc.size, all = moves.size_bytes.size;
    require_below(moves.arc, net.src.size, "arc");
    require(moves.waits.size == each && moves.urgency.size == all, "moves: columns of different lengths");
    require(each > 0 && all % each == 0 && all < kMostMoves, "size_bytes: so many a piece");
    require_cuts(moves.next_starts, each, moves.nexts.size, "next_starts");
    require_below(moves.nexts, each, "nexts");
    std::vector<int32_t> waits(each, 0);
    for (size_t i = 0; i < moves.nexts.size; ++i) ++waits[moves.nexts[i]];
    for (size_t i = 0; i < each; ++i) require(waits[i] == moves.waits[i], "waits");
    require_times(moves.size_bytes, "size_bytes");
    double bytes = 0;
    for (size_t i = 0; i < all; ++i) bytes += static_cast<double>(moves.size_bytes[i]);
    check_times(net, bytes, static_cast<double>(all));
}

template <class Run>
nb::tuple messages_of(Run&& run) {
    return nb::make_tuple(to_numpy(std::move(run.arc_of)), to_numpy(std::move(run.step_of)), to_numpy(std::move(run.start)),
                          to_numpy(std::move(run.end)), to_numpy(std::move(run.piece_starts)), to_numpy(std::move(run.pieces)));
}

nb::tuple matched(int32_t p, Input<int32_t> src, Input<int32_t> dst, Input<int64_t> hop_starts, Input<int32_t> hops,
                  Input<int64_t> delay, Input<double> ps_per_byte, Input<int64_t> latency, Input<uint8_t> holds,
                  Input<int32_t> root, Input<int32_t> target, Input<int64_t> size_bytes, Input<int32_t> far,
                  Input<int32_t> yard, int64_t merge, int64_t taper, bool rarest, uint64_t seed) {
    const Network net{p, view(src), view(dst), view(hop_starts), view(hops), view(delay), view(ps_per_byte), view(latency), view(holds)};
    const Wanted wanted{view(root), view(target), view(size_bytes), view(far), view(yard)};
    require(p > 0 && merge > 0 && taper >= 0, "p, merge or taper");
    check(net);
    check(net, wanted);
    Matching matching(net, wanted, merge, taper, rarest, seed);
    {
        nb::gil_scoped_release unlocked;
        matching.run();
    }
    return messages_of(std::move(matching));
}

nb::tuple listed(int32_t p, Input<int32_t> src, Input<int32_t> dst, Input<int64_t> hop_starts, Input<int32_t> hops,
                 Input<int64_t> delay, Input<double> ps_per_byte, Input<int64_t> latency, Input<uint8_t> holds, Input<int32_t> arc,
                 Input<int64_t> next_starts, Input<int32_t> nexts, Input<int32_t> waits, Input<int64_t> size_bytes,
                 Input<int64_t> urgency, int64_t merge_bytes) {
    const Network net{p, view(src), view(dst), view(hop_starts), view(hops), view(delay), view(ps_per_byte), view(latency), view(holds)};
    const Moves moves{view(arc), view(next_starts), view(nexts), view(waits), view(size_bytes), view(urgency)};
    require(p > 0 && merge_bytes >= 0, "p or merge_bytes");
    check(net);
    check(net, moves);
    Listing listing(net, moves, merge_bytes);
    {
        nb::gil_scoped_release unlocked;
        listing.run();
    }
    return messages_of(std::move(listing));
}

}  // namespace

NB_MODULE(_expand, module) {
    module.doc() = "Greedy matching of chunks to arcs, and list scheduling; ringwright.algorithms says what they mean.";
    module.def("matched", &matched, nb::arg("p"), nb::arg("src"), nb::arg("dst"), nb::arg("hop_starts"), nb::arg("hops"),
               nb::arg("delay"), nb::arg("ps_per_byte"), nb::arg("latency"), nb::arg("holds"), nb::arg("root"),
               nb::arg("target"), nb::arg("size_bytes"), nb::arg("far"), nb::arg("yard"), nb::arg("merge"), nb::arg("taper"), nb::arg("rarest"), nb::arg("seed"));
    module.def("listed", &listed, nb::arg("p"), nb::arg("src"), nb::arg("dst"), nb::arg("hop_starts"), nb::arg("hops"),
               nb::arg("delay"), nb::arg("ps_per_byte"), nb::arg("latency"), nb::arg("holds"), nb::arg("arc"),
               nb::arg("next_starts"), nb::arg("nexts"), nb::arg("waits"), nb::arg("size_bytes"), nb::arg("urgency"), nb::arg("merge_bytes"));
}
