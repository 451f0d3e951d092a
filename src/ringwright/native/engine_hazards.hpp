// What waits for what, from the slots that messages read and write; engines/hazards.py defines it.
//
// One pass over the pieces, step by step. A place remembers who wrote it last, who has read it since, and who read it in
// the very step in which it was written. A list that a second message waits for becomes a join.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace ringwright {

struct Order {
    std::vector<int64_t> next_starts;
    std::vector<int32_t> nexts;
    std::vector<int32_t> waits;
};

class Hazards {
public:
    Hazards(size_t places, int32_t messages) : places_(places), next_id_(messages) {}

    // Pieces [from, to) are one step: each reads one place and writes one.
    void step(const int32_t* message, const int32_t* reads, const int32_t* writes, size_t from, size_t to) {
        ++step_;
        for (size_t i = from; i < to; ++i) read(places_[reads[i]], message[i]);
        for (size_t i = from; i < to; ++i) write(places_[writes[i]], message[i]);
        for (size_t i = from; i < to; ++i) places_[writes[i]].written = -1;
        before_.clear();
    }

    // The edges, each once, by the message that is waited for.
    Order order() const {
        const size_t n = static_cast<size_t>(next_id_);
        Order out;
        std::vector<int64_t> at(n + 1);
        for (const auto& edge : edges_) ++at[edge.first + 1];
        for (size_t i = 0; i < n; ++i) at[i + 1] += at[i];
        std::vector<int64_t> starts(at);
        std::vector<int32_t> sorted(edges_.size());
        for (const auto& edge : edges_) sorted[at[edge.first]++] = edge.second;
        out.next_starts.assign(n + 1, 0);
        out.waits.assign(n, 0);
        std::vector<int32_t> seen(n, -1);
        for (size_t before = 0; before < n; ++before) {
            for (int64_t i = starts[before]; i < starts[before + 1]; ++i) {
                const int32_t after = sorted[i];
                if (seen[after] == static_cast<int32_t>(before)) continue;
                seen[after] = static_cast<int32_t>(before);
                out.nexts.push_back(after);
                ++out.waits[after];
            }
            out.next_starts[before + 1] = static_cast<int64_t>(out.nexts.size());
        }
        return out;
    }

private:
    // Messages: the last one named, and the chain of the others in `links_`; -1 ends it. Chains are shared, never changed.
    struct List {
        int32_t first = -1;
        int32_t rest = -1;

        bool empty() const { return first < 0; }
    };
    struct Place {
        List writers;       // of the last step that wrote
        List own;           // readers of that same step
        List readers;       // since then, the latest reading step left out
        List now;           // readers of the latest reading step
        int32_t read = -1;  // which step that is
        int32_t written = -1;  // while a step writes: its place in `before_`
    };
    // What the writers of one place wait for.
    struct Before {
        List first, also;
    };

    void add(List& list, int32_t message) {
        if (list.empty()) {
            list.first = message;
        } else if (list.first != message) {
            links_.push_back({list.first, list.rest});
            list = {message, static_cast<int32_t>(links_.size()) - 1};
        }
    }

    void link(int32_t before, int32_t after) {
        if (before != after && !(last_.first == before && last_.second == after)) {
            last_ = {before, after};
            edges_.push_back(last_);
        }
    }

    // Several messages become one join, which then stands in the list for them.
    void wait(List& list, int32_t message) {
        if (list.rest >= 0) {
            const int32_t join = next_id_++;
            link(list.first, join);
            for (int32_t at = list.rest; at >= 0; at = links_[at].second) link(links_[at].first, join);
            list = {join, -1};
        }
        if (!list.empty()) link(list.first, message);
    }

    // Readers of an earlier step join the others.
    void settle(Place& place) {
        if (place.now.empty() || place.read == step_) return;
        if (place.readers.empty()) {
            place.readers = place.now;
        } else {
            add(place.readers, place.now.first);
            for (int32_t at = place.now.rest; at >= 0; at = links_[at].second) add(place.readers, links_[at].first);
        }
        place.now = List();
    }

    void read(Place& place, int32_t message) {
        settle(place);
        wait(place.writers, message);
        add(place.now, message);
        place.read = step_;
    }

    void write(Place& place, int32_t message) {
        if (place.written < 0) {
            settle(place);
            place.written = static_cast<int32_t>(before_.size());
            before_.push_back({place.readers.empty() ? place.writers : place.readers, place.own});
            place.own = place.read == step_ ? place.now : List();
            place.now = place.readers = place.writers = List();
        }
        Before& before = before_[place.written];
        wait(before.first, message);
        wait(before.also, message);
        add(place.writers, message);
    }

    std::vector<Place> places_;
    std::vector<Before> before_;
    std::vector<std::pair<int32_t, int32_t>> links_;
    std::vector<std::pair<int32_t, int32_t>> edges_;
    std::pair<int32_t, int32_t> last_{-1, -1};
    int32_t next_id_;
    int32_t step_ = -1;
};

}  // namespace ringwright
