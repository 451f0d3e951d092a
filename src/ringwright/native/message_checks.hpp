// What the event loop and the flow loop trust of messages and resources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "checks.hpp"

namespace ringwright {

// Nothing but its one fork releases a branch: then a branch begins once, however the forks are drawn.
inline void check_forks(const Flat& flat) {
    if (!flat.child.size) return;
    std::vector<char> is_branch(flat.waits.size);
    for (size_t i = 0; i < flat.child.size; ++i) {
        char& known = is_branch[flat.child[i]];
        require(!known && flat.waits[flat.child[i]] == 1, "forks: a branch waits for its fork alone");
        known = 1;
    }
    for (size_t i = 0; i < flat.nexts.size; ++i) require(!is_branch[flat.nexts[i]], "forks: a branch is released twice");
}

inline void check(const Flat& flat, const Resources& resources) {
    const size_t messages = flat.size_bytes.size, all = flat.waits.size, servers = resources.ps_per_byte.size;
    require(flat.hop.size == flat.parent.size && flat.child.size == flat.parent.size, "forks");
    require_below(flat.parent, messages, "forks");
    require_below(flat.child, messages, "forks");
    for (size_t i = 1; i < flat.parent.size; ++i) require(flat.parent[i - 1] <= flat.parent[i], "forks");
    require(all >= messages && flat.delay.size == messages, "columns of different lengths");
    require(all < (size_t{1} << 31), "more than 2,147,483,647 messages");
    for (size_t i = 0; i < all; ++i) require(flat.waits[i] >= 0, "waits");
    require_cuts(flat.hop_starts, messages, flat.hops.size, "hop_starts");
    require_cuts(flat.next_starts, all, flat.nexts.size, "next_starts");
    require_below(flat.hops, servers, "hops");
    require_below(flat.nexts, all, "nexts");
    check_forks(flat);
    require(resources.latency.size == servers && resources.whole.size == servers && resources.holds.size == servers,
            "resources of different lengths");
    require_below(resources.change_resource, servers, "changes");
    const size_t changes = resources.change_resource.size;
    require_times(flat.delay, "delay");
    require_times(resources.latency, "latency");
    require_times(resources.delay_latency, "delays");
    require_ps_per_byte(resources.ps_per_byte, "ps_per_byte");
    require_ps_per_byte(resources.change_ps_per_byte, "changes");
    for (size_t i = 0; i < flat.size_bytes.size; ++i) require(flat.size_bytes[i] >= 0, "size_bytes");
    require(resources.change_time.size == changes && resources.change_ps_per_byte.size == changes, "changes");
    require_below(resources.delay_resource, servers, "delays");
    const size_t delays = resources.delay_resource.size;
    require(resources.delay_time.size == delays && resources.delay_latency.size == delays, "delays");
}

}  // namespace ringwright
