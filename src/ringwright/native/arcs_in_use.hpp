// Arcs and the resources that messages on them occupy; algorithms/arcs_in_use.py defines what it means.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine_events.hpp"

namespace ringwright {

// Arcs between ranks, and the resources that a message on each passes in order.
struct Network {
    int32_t p;
    Span<int32_t> src, dst;
    Span<int64_t> hop_starts;
    Span<int32_t> hops;
    Span<int64_t> delay;
    Span<double> ps_per_byte;
    Span<int64_t> latency;
    Span<uint8_t> holds;
};

class ArcsInUse {
public:
    explicit ArcsInUse(const Network& net) : net_(net), free_(net.ps_per_byte.size, 0), stepped_(net.ps_per_byte.size, -1) {}

    int64_t busy(int64_t size, int32_t resource) const {
        return static_cast<int64_t>(std::ceil(static_cast<double>(size) * net_.ps_per_byte[resource]));
    }

    // From when on a message meets no other on the arc.
    int64_t idle_from(int32_t arc) const {
        int64_t offset = net_.delay[arc], from = 0;
        for (int64_t hop = net_.hop_starts[arc]; hop < net_.hop_starts[arc + 1]; ++hop) {
            from = std::max(from, free_[net_.hops[hop]] - offset);
            offset += net_.latency[net_.hops[hop]];
        }
        return from;
    }

    // The step of the next message on the arc, if what it waited for is of steps up to `arrived`: the only one of its step on its
    // first resource, or (`alone`) on all that it passes.
    int32_t step(int32_t arc, int32_t arrived, bool alone = false) const {
        const int64_t first = net_.hop_starts[arc];
        int32_t step = arrived + 1;
        for (int64_t hop = first; hop < net_.hop_starts[arc + 1]; ++hop) {
            step = std::max(step, stepped_[net_.hops[hop]] + (alone || hop == first));
        }
        return step;
    }

    // Put a message on the arc; return when it has arrived.
    int64_t pass(int32_t arc, int64_t size, int64_t now, int32_t step) {
        int64_t head = now + net_.delay[arc], tail = head;
        for (int64_t hop = net_.hop_starts[arc]; hop < net_.hop_starts[arc + 1]; ++hop) {
            const int32_t resource = net_.hops[hop];
            const int64_t begin = std::max(head, free_[resource]), stop = begin + busy(size, resource);
            free_[resource] = net_.holds[resource] ? stop + net_.latency[resource] : stop;
            head = begin + net_.latency[resource];
            tail = std::max(stop, tail) + net_.latency[resource];
            stepped_[resource] = step;
        }
        return tail;
    }

private:
    const Network net_;
    std::vector<int64_t> free_;
    std::vector<int32_t> stepped_;
};

}  // namespace ringwright
