// Greedy matching of chunks to arcs over time; algorithms/synthesis/expand/_loop.py defines what it means, and both agree to the
// bit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "arcs_in_use.hpp"

namespace ringwright {

// Chunks: who has each at the start, who wants it (-1: all), its bytes. `far` (p x p, by target; empty where all want all) counts
// arcs. `yard` of each rank, where there are any: no chunk comes into one twice.
struct Wanted {
    Span<int32_t> root, target;
    Span<int64_t> size_bytes;
    Span<int32_t> far, yard;
};

inline uint64_t mixed(uint64_t value) {
    value += 0x9E3779B97F4A7C15u;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

class Matching {
public:
    Matching(const Network& net, const Wanted& wanted, int64_t merge, int64_t taper, bool rarest, uint64_t seed)
        : net_(net), wanted_(wanted), merge_(merge), taper_(taper), rarest_(rarest), seed_(mixed(seed)), chunks_(wanted.root.size),
          arcs_(net.src.size), use_(net), out_(net.p), held_(net.p), missing_(net.p, static_cast<int64_t>(chunks_)) {
        for (size_t arc = 0; arc < arcs_; ++arc) out_[net.src[arc]].push_back(static_cast<int32_t>(arc));
        for (size_t rank = 0; rank < wanted.yard.size; ++rank) yards_ = std::max(yards_, static_cast<size_t>(wanted.yard[rank]) + 1);
        next_.assign(arcs_, 0);
        due_.assign(arcs_, -1);
        batch_of_.assign(arcs_, -1);
        lot_.assign(arcs_, 0);
        taken_.assign(static_cast<size_t>(net.p) * chunks_, kNot);
        inside_.assign(yards_ * chunks_, 0);
        yard_missing_.assign(yards_, static_cast<int64_t>(chunks_));
        copies_.assign(chunks_, 1);
        share_out();
    }

    void run() {
        for (size_t chunk = 0; chunk < chunks_; ++chunk) {
            const int32_t root = wanted_.root[chunk];
            at(root, chunk) = kHere;
            --missing_[root];
            if (yards_) {
                inside_[wanted_.yard[root] * chunks_ + chunk] = 1;
                --yard_missing_[wanted_.yard[root]];
            }
            held_[root].push_back({0, static_cast<int32_t>(chunk)});
        }
        for (size_t arc = 0; arc < arcs_; ++arc) wake(static_cast<int32_t>(arc));
        serve(0);
        while (!events_.empty()) {
            const int64_t now = events_.top().first;
            ++batch_;
            while (!events_.empty() && events_.top().first == now) {
                const int64_t id = events_.top().second;
                events_.pop();
                if (id < static_cast<int64_t>(arcs_)) {
                    due_[id] = -1;
                    wake(static_cast<int32_t>(id));
                } else {
                    arrive(static_cast<size_t>(id) - arcs_, now);
                }
            }
            serve(now);
        }
    }

    // Of each message, in the order in which they start; piece_starts cuts pieces.
    std::vector<int32_t> arc_of, step_of, pieces;
    std::vector<int64_t> start, end, piece_starts{0};

private:
    struct Held {
        int64_t ready;
        int32_t chunk;
    };
    using Event = std::pair<int64_t, int64_t>;  // time, arc or arcs + message
    enum : uint8_t { kNot, kHere, kGone };
    static constexpr size_t kSeen = 256;  // chunks among which the rarest is looked for

    uint8_t& at(int32_t rank, size_t chunk) { return taken_[static_cast<size_t>(rank) * chunks_ + chunk]; }
    uint8_t at(int32_t rank, size_t chunk) const { return taken_[static_cast<size_t>(rank) * chunks_ + chunk]; }
    int32_t far(int32_t chunk, int32_t rank) const { return wanted_.far[static_cast<size_t>(wanted_.target[chunk]) * net_.p + rank]; }

    // How long a chunk takes on each arc, whether the arc goes into a yard, and its part of all that comes in where it does.
    void share_out() {
        int64_t size = 0;
        for (size_t chunk = 0; chunk < chunks_; ++chunk) size = std::max(size, wanted_.size_bytes[chunk]);
        std::vector<double> into(net_.p, 0.0), into_yard(yards_, 0.0);
        for (size_t arc = 0; arc < arcs_; ++arc) {
            int64_t slowest = 0, latency = net_.delay[arc];
            for (int64_t hop = net_.hop_starts[arc]; hop < net_.hop_starts[arc + 1]; ++hop) {
                slowest = std::max(slowest, use_.busy(size, net_.hops[hop]));
                latency += net_.latency[net_.hops[hop]];
            }
            cost_.push_back(slowest + latency);
            enters_.push_back(yards_ && wanted_.yard[net_.src[arc]] != wanted_.yard[net_.dst[arc]]);
            const double speed = 1.0 / static_cast<double>(std::max<int64_t>(1, cost_[arc]));
            into[net_.dst[arc]] += speed;
            if (enters_[arc]) into_yard[wanted_.yard[net_.dst[arc]]] += speed;
            share_.push_back(speed);
        }
        for (size_t arc = 0; arc < arcs_; ++arc) {
            share_[arc] /= enters_[arc] ? into_yard[wanted_.yard[net_.dst[arc]]] : into[net_.dst[arc]];
        }
    }

    void wake(int32_t arc) {
        if (batch_of_[arc] == batch_ || due_[arc] >= 0) return;
        batch_of_[arc] = batch_;
        lot_[arc] = mixed(seed_ + draws_++);
        awake_.push_back(arc);
    }

    void arrive(size_t message, int64_t now) {
        const int32_t rank = net_.dst[arc_of[message]];
        for (int64_t i = piece_starts[message]; i < piece_starts[message + 1]; ++i) held_[rank].push_back({now, pieces[i]});
        arrived_ = std::max(arrived_, step_of[message]);
        for (const int32_t arc : out_[rank]) wake(arc);
    }

    void serve(int64_t now) {
        std::sort(awake_.begin(), awake_.end(), [this](int32_t a, int32_t b) {
            return std::tie(cost_[a], lot_[a], a) < std::tie(cost_[b], lot_[b], b);
        });
        for (const int32_t arc : awake_) {
            if (use_.idle_from(arc) <= now) {
                take(arc);
                if (chosen_.empty()) continue;
                send(arc, now);
            }
            if (!has(arc)) continue;
            due_[arc] = std::max(use_.idle_from(arc), now + 1);
            events_.push({due_[arc], arc});
        }
        awake_.clear();
    }

    bool wants(int32_t arc, int32_t chunk) const {
        const int32_t src = net_.src[arc], dst = net_.dst[arc];
        if (wanted_.target[chunk] >= 0) return at(src, chunk) == kHere && far(chunk, dst) < far(chunk, src);
        return at(dst, chunk) == kNot && !(enters_[arc] && inside_[wanted_.yard[dst] * chunks_ + chunk]);
    }

    // What a target does not want once it never wants again, so that the oldest wanted chunk only moves on.
    bool has(int32_t arc) {
        const std::vector<Held>& held = held_[net_.src[arc]];
        while (next_[arc] < held.size() && !wants(arc, held[next_[arc]].chunk)) ++next_[arc];
        return next_[arc] < held.size();
    }

    void take(int32_t arc) {
        chosen_.clear();
        const std::vector<Held>& held = held_[net_.src[arc]];
        const int64_t most = limit(arc);
        while (static_cast<int64_t>(chosen_.size()) < most && has(arc)) {
            const int64_t ready = held[next_[arc]].ready;
            int32_t best = -1;
            std::pair<int64_t, uint64_t> least;
            const size_t seen = std::min(held.size(), next_[arc] + kSeen);
            for (size_t i = next_[arc]; i < seen && (rarest_ || held[i].ready == ready); ++i) {
                const int32_t chunk = held[i].chunk;
                if (!wants(arc, chunk)) continue;
                const std::pair<int64_t, uint64_t> key{rarity(arc, chunk), mixed(seed_ ^ (static_cast<uint64_t>(chunk) * arcs_ + arc))};
                if (best < 0 || key < least) best = chunk, least = key;
            }
            mark(arc, best);
            chosen_.push_back(best);
        }
    }

    // Chunks of one message: with a taper fewer and fewer, so that all arcs into a rank end at about one time.
    int64_t limit(int32_t arc) const {
        if (!taper_) return merge_;
        const int32_t dst = net_.dst[arc];
        const int64_t missing = enters_[arc] ? yard_missing_[wanted_.yard[dst]] : missing_[dst];
        const double part = static_cast<double>(missing) * share_[arc] / static_cast<double>(taper_);
        return std::min(merge_, std::max<int64_t>(1, static_cast<int64_t>(part)));
    }

    int64_t rarity(int32_t arc, int32_t chunk) const {
        return wanted_.target[chunk] >= 0 ? -int64_t{far(chunk, net_.src[arc])} : int64_t{copies_[chunk]};
    }

    void mark(int32_t arc, int32_t chunk) {
        const int32_t dst = net_.dst[arc];
        if (wanted_.target[chunk] >= 0) at(net_.src[arc], chunk) = kGone;
        at(dst, chunk) = kHere;
        ++copies_[chunk];
        --missing_[dst];
        if (enters_[arc]) {
            inside_[wanted_.yard[dst] * chunks_ + chunk] = 1;
            --yard_missing_[wanted_.yard[dst]];
        }
    }

    void send(int32_t arc, int64_t now) {
        int64_t size = 0;
        for (const int32_t chunk : chosen_) size += wanted_.size_bytes[chunk];
        const int32_t step = use_.step(arc, arrived_);
        const int64_t tail = use_.pass(arc, size, now, step);
        events_.push({tail, static_cast<int64_t>(arcs_ + arc_of.size())});
        arc_of.push_back(arc);
        step_of.push_back(step);
        start.push_back(now);
        end.push_back(tail);
        pieces.insert(pieces.end(), chosen_.begin(), chosen_.end());
        piece_starts.push_back(static_cast<int64_t>(pieces.size()));
    }

    const Network net_;
    const Wanted wanted_;
    const int64_t merge_, taper_;
    const bool rarest_;
    const uint64_t seed_;
    const size_t chunks_, arcs_;
    ArcsInUse use_;
    size_t yards_ = 0;
    int32_t arrived_ = -1;  // the highest step of a message that has arrived
    int64_t batch_ = 0;
    uint64_t draws_ = 0;
    std::vector<std::vector<int32_t>> out_;
    std::vector<std::vector<Held>> held_;
    std::vector<int64_t> missing_, yard_missing_, due_, batch_of_, cost_;
    std::vector<int32_t> awake_, chosen_, copies_;
    std::vector<uint64_t> lot_;
    std::vector<size_t> next_;
    std::vector<double> share_;
    std::vector<uint8_t> taken_, inside_, enters_;
    std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
};

}  // namespace ringwright
