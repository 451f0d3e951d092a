// Max-min fair rates by progressive filling; engines/fairness.py defines them.
//
// A heap finds the next resource to fill. Shares never fall while others fill, so an entry is corrected when it comes up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace ringwright {

// Scratch space for one machine, reused from solve to solve. The callables give, for a class, its resources (`way`) and its
// flows (`count`); for a resource, its classes (`users`, others than the part's may be among them) and what it can carry.
class Filling {
public:
    explicit Filling(size_t resources, size_t classes)
        : left_(resources), users_(resources, 0), taken_(resources, 0), open_(classes, 0) {}

    template <class Way, class Count, class Users, class Free, class Give>
    void solve(const std::vector<int32_t>& part, Way way, Count count, Users users, Free free, Give give) {
        touched_.clear();
        for (const int32_t number : part) {
            open_[number] = 1;
            for (const int32_t resource : way(number)) {
                if (users_[resource] == 0) {
                    left_[resource] = free(resource);
                    touched_.push_back(resource);
                }
                users_[resource] += count(number);
            }
        }
        heap_.clear();
        for (const int32_t resource : touched_) heap_.push_back({share(resource), resource});
        std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
        size_t open = part.size();
        while (open > 0) {
            const size_t done = fill(way, count, users, give);
            if (done == 0) break;  // who uses nothing has no rate
            open -= done;
        }
        for (const int32_t number : part) open_[number] = 0;
        for (const int32_t resource : touched_) users_[resource] = 0;
    }

private:
    using Entry = std::pair<int64_t, int32_t>;

    int64_t share(int32_t resource) const { return left_[resource] / users_[resource]; }

    void push(const Entry& entry) {
        heap_.push_back(entry);
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }

    void drop() {
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        heap_.pop_back();
    }

    // Bring the least share to the top; false where no resource has users left.
    bool settle() {
        while (!heap_.empty()) {
            const auto [key, resource] = heap_.front();
            if (users_[resource] == 0) {
                drop();
                continue;
            }
            const int64_t now = share(resource);
            if (now == key) return true;
            drop();
            push({now, resource});
        }
        return false;
    }

    template <class Way, class Count, class Users, class Give>
    size_t fill(Way way, Count count, Users users, Give give) {
        if (!settle()) return 0;
        const int64_t level = heap_.front().first;
        full_.clear();
        while (settle() && heap_.front().first <= level + (level >> 30)) {
            full_.push_back(heap_.front().second);
            drop();
        }
        changed_.clear();
        size_t done = 0;
        for (const int32_t bottleneck : full_) {
            for (const int32_t number : users(bottleneck)) {
                if (!open_[number]) continue;
                open_[number] = 0;
                ++done;
                give(number, level);
                for (const int32_t resource : way(number)) {
                    if (taken_[resource] == 0) changed_.push_back(resource);
                    taken_[resource] += count(number);
                }
            }
        }
        for (const int32_t resource : changed_) {
            left_[resource] -= level * taken_[resource];
            users_[resource] -= taken_[resource];
            taken_[resource] = 0;
        }
        return done;
    }

    std::vector<int64_t> left_, users_, taken_;
    std::vector<char> open_;
    std::vector<int32_t> touched_, full_, changed_;
    std::vector<Entry> heap_;
};

// One solve, every flow a class of its own; the spans are those of engine_events.hpp.
template <class Starts, class Ways, class Capacity>
void solve_once(const Starts& starts, const Ways& ways, const Capacity& capacity, std::vector<int64_t>& rates) {
    struct Range {
        const int32_t *first, *last;
        const int32_t* begin() const { return first; }
        const int32_t* end() const { return last; }
    };
    const size_t flows = starts.size - 1, resources = capacity.size;
    std::vector<int64_t> cuts(resources + 2, 0);  // cuts[r + 1] runs from the start of r to its end
    for (size_t i = 0; i < ways.size; ++i) ++cuts[ways[i] + 2];
    for (size_t i = 1; i < cuts.size(); ++i) cuts[i] += cuts[i - 1];
    std::vector<int32_t> users(ways.size), all(flows);
    for (size_t flow = 0; flow < flows; ++flow) {
        all[flow] = static_cast<int32_t>(flow);
        for (int64_t at = starts[flow]; at < starts[flow + 1]; ++at) users[cuts[ways[at] + 1]++] = all[flow];
    }
    Filling filling(resources, flows);
    filling.solve(
        all,
        [&](int32_t flow) { return Range{ways.data + starts[flow], ways.data + starts[flow + 1]}; },
        [](int32_t) { return int64_t{1}; },
        [&](int32_t resource) { return Range{users.data() + cuts[resource], users.data() + cuts[resource + 1]}; },
        [&](int32_t resource) { return capacity[resource]; }, [&](int32_t flow, int64_t rate) { rates[flow] = rate; });
}

}  // namespace ringwright
