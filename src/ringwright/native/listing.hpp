// List scheduling of moves on arcs by urgency; algorithms/list_schedule.py defines what it means, and both agree to the bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "arcs_in_use.hpp"

namespace ringwright {

// Moves of one piece, and which wait for which; bytes and urgency of every piece's, piece by piece.
struct Moves {
    Span<int32_t> arc;
    Span<int64_t> next_starts;
    Span<int32_t> nexts;
    Span<int32_t> waits;
    Span<int64_t> size_bytes, urgency;
};

class Listing {
public:
    Listing(const Network& net, const Moves& moves, int64_t merge_bytes)
        : moves_(moves), merge_bytes_(merge_bytes), each_(moves.arc.size), arcs_(net.src.size), use_(net), queues_(net.src.size),
          due_(net.src.size, -1), is_awake_(net.src.size, 0) {
        for (size_t move = 0; move < moves.size_bytes.size; ++move) waits_.push_back(moves.waits[move % each_]);
        fed_.assign(waits_.size(), -1);
    }

    void run() {
        for (size_t move = 0; move < waits_.size(); ++move) {
            if (!waits_[move]) queue(static_cast<int64_t>(move));
        }
        serve(0);
        while (!events_.empty()) {
            const int64_t now = events_.top().first;
            while (!events_.empty() && events_.top().first == now) {
                const int64_t id = events_.top().second;
                events_.pop();
                if (id < arcs_) {
                    due_[id] = -1;
                    wake(static_cast<int32_t>(id));
                } else {
                    arrive(static_cast<size_t>(id - arcs_));
                }
            }
            serve(now);
        }
    }

    // Of each message, in the order in which they start; piece_starts cuts pieces, the moves that it carries.
    std::vector<int32_t> arc_of, step_of, pieces;
    std::vector<int64_t> start, end, piece_starts{0};

private:
    using Pair = std::pair<int64_t, int64_t>;  // urgency and move, or time and arc or arcs + message
    using Least = std::priority_queue<Pair, std::vector<Pair>, std::greater<Pair>>;

    void wake(int32_t arc) {
        if (is_awake_[arc] || due_[arc] >= 0) return;
        is_awake_[arc] = 1;
        awake_.push_back(arc);
    }

    void queue(int64_t move) {
        const int32_t arc = moves_.arc[move % each_];
        queues_[arc].push({moves_.urgency[move], move});
        wake(arc);
    }

    void arrive(size_t message) {
        for (int64_t i = piece_starts[message]; i < piece_starts[message + 1]; ++i) {
            const int64_t move = pieces[i] % each_, first = pieces[i] - move;
            for (int64_t at = moves_.next_starts[move]; at < moves_.next_starts[move + 1]; ++at) {
                const int64_t after = first + moves_.nexts[at];
                fed_[after] = std::max(fed_[after], step_of[message]);
                if (!--waits_[after]) queue(after);
            }
        }
    }

    void serve(int64_t now) {
        std::sort(awake_.begin(), awake_.end(), [this](int32_t a, int32_t b) {
            return std::make_pair(queues_[a].top(), a) < std::make_pair(queues_[b].top(), b);
        });
        for (const int32_t arc : awake_) {
            is_awake_[arc] = 0;
            if (use_.idle_from(arc) <= now) send(arc, now);
            if (queues_[arc].empty()) continue;
            due_[arc] = std::max(use_.idle_from(arc), now + 1);
            events_.push({due_[arc], arc});
        }
        awake_.clear();
    }

    void send(int32_t arc, int64_t now) {
        Least& ready = queues_[arc];
        int64_t size = 0;
        int32_t fed = -1;
        do {
            const int64_t move = ready.top().second;
            ready.pop();
            size += moves_.size_bytes[move];
            fed = std::max(fed, fed_[move]);
            pieces.push_back(static_cast<int32_t>(move));
        } while (!ready.empty() && size + moves_.size_bytes[ready.top().second] <= merge_bytes_);
        const int32_t step = use_.step(arc, fed, true);
        const int64_t tail = use_.pass(arc, size, now, step);
        events_.push({tail, arcs_ + static_cast<int64_t>(arc_of.size())});
        arc_of.push_back(arc);
        step_of.push_back(step);
        start.push_back(now);
        end.push_back(tail);
        piece_starts.push_back(static_cast<int64_t>(pieces.size()));
    }

    const Moves moves_;
    const int64_t merge_bytes_, each_, arcs_;
    ArcsInUse use_;
    std::vector<Least> queues_;
    std::vector<int64_t> due_;
    std::vector<uint8_t> is_awake_;
    std::vector<int32_t> waits_, fed_, awake_;  // fed_: the highest step of what a move waited for
    Least events_;
};

}  // namespace ringwright
