// What is ready in each communication queue, the most urgent first.
//
// A blocking queue is one heap of runs. In the others instances that fit and are refused alike (equal size, domains and tokens) share
// a heap, so that looking for the first that may start costs a look at each kind and not at each instance.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <unordered_map>
#include <vector>

#include "job_flat.hpp"

namespace ringwright {

struct Ready {
    int64_t key, arrival;
    int32_t instance;

    bool operator>(const Ready& other) const { return key != other.key ? key > other.key : arrival > other.arrival; }
};

class ReadyHeap {
public:
    bool empty() const { return heap_.empty(); }
    const Ready& top() const { return heap_.front(); }

    void push(const Ready& ready) {
        heap_.push_back(ready);
        std::push_heap(heap_.begin(), heap_.end(), std::greater<Ready>());
    }

    void pop() {
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<Ready>());
        heap_.pop_back();
    }

private:
    std::vector<Ready> heap_;
};

// Instances in a row that arrived in a row, with one key.
struct Run {
    Ready first;
    int32_t many = 0;
    bool operator>(const Run& other) const { return first > other.first; }
};

// The same of a blocking queue, in which pieces of an operation come in one after another: a run is one entry, whose first leaves it
// without a change of the heap.
class ReadyRuns {
public:
    bool empty() const { return heap_.empty() && !latest_.many; }

    void push(const Ready& ready) {
        if (latest_.many && follows(ready)) {
            ++latest_.many;
            return;
        }
        settle();
        latest_ = {ready, 1};
    }

    const Ready& top() {
        settle();
        return heap_.front().first;
    }

    void pop(int32_t count = 1) {
        settle();
        Run& run = heap_.front();
        run.many -= count;
        run.first.arrival += count;
        run.first.instance += count;
        if (run.many) return;
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<Run>());
        heap_.pop_back();
    }

    // Take at most so many that go on behind an instance, if they are the next.
    Run more(int32_t instance, int32_t most) {
        if (empty() || top().instance != instance + 1) return {};
        const Run taken{top(), std::min(most, heap_.front().many)};
        pop(taken.many);
        return taken;
    }

    void put_back(const Run& run) {
        heap_.push_back(run);
        std::push_heap(heap_.begin(), heap_.end(), std::greater<Run>());
    }

private:
    bool follows(const Ready& ready) const {
        const Ready& first = latest_.first;
        return ready.key == first.key && ready.arrival == first.arrival + latest_.many &&
               ready.instance == first.instance + latest_.many;
    }

    // Put what came in last onto the heap.
    void settle() {
        if (latest_.many) put_back(latest_);
        latest_.many = 0;
    }

    std::vector<Run> heap_;
    Run latest_{};
};

class ReadyLists {
public:
    explicit ReadyLists(const JobFlat& flat)
        : flat_(flat), blocking_(flat.queues()), smallest_(flat.queues(), std::numeric_limits<double>::infinity()),
          in_use_(flat.queues()), kind_(has_patient(flat) ? flat.n() : 0) {
        for (size_t i = 0; i < flat.n(); ++i) {
            const int32_t queue = flat.queue[i];
            if (queue != JobFlat::kNoQueue) smallest_[queue] = std::min(smallest_[queue], flat.size[i]);
        }
        find_kinds();
    }

    void push(int32_t queue, const Ready& ready) {
        if (flat_.blocking[queue]) {
            blocking_[queue].push(ready);
            return;
        }
        const int32_t kind = kind_[ready.instance];
        if (kinds_[kind].empty()) in_use_[queue].push_back(kind);
        kinds_[kind].push(ready);
    }

    bool empty(int32_t queue) const { return flat_.blocking[queue] ? blocking_[queue].empty() : in_use_[queue].empty(); }

    // Take the most urgent that may start out of the list, or return -1. `may` says whether gates and tokens let it.
    template <class May>
    int32_t take(int32_t queue, double inflight, const May& may) {
        const double window = flat_.window[queue];
        if (!flat_.blocking[queue]) return take_fitting(queue, inflight, window, may);
        ReadyRuns& ready = blocking_[queue];
        const int32_t instance = ready.top().instance;
        if (!(inflight < window) || !may(instance)) return -1;
        ready.pop();
        return instance;
    }

    // Of a blocking queue: take at most so many instances that go on behind one, if they are the next; and put them back.
    Run more(int32_t queue, int32_t instance, int32_t most) { return blocking_[queue].more(instance, most); }
    void put_back(int32_t queue, const Ready& first, int32_t many) { blocking_[queue].put_back({first, many}); }

private:
    struct Hash {
        const JobFlat& flat;
        bool gated;
        size_t operator()(int32_t instance) const {
            size_t sum = std::hash<double>()(flat.size[instance]) + static_cast<size_t>(flat.queue[instance]);
            const auto mix = [&sum](size_t value) { sum = (sum ^ value) * 0x9E3779B97F4A7C15u + (sum >> 29); };
            const Row domains = flat.domains_of(instance), tokens = flat.tokens_of(instance);
            for (int64_t at = domains.first; gated && at < domains.last; ++at) mix(flat.domain[at]);
            for (int64_t at = tokens.first; at < tokens.last; ++at) mix(flat.token[at]);
            return sum;
        }
    };
    struct Alike {
        const JobFlat& flat;
        bool gated;
        bool operator()(int32_t one, int32_t other) const {
            if (flat.queue[one] != flat.queue[other] || flat.size[one] != flat.size[other]) return false;
            if (gated && !same(flat.domain, flat.domains_of(one), flat.domains_of(other))) return false;
            const Row tokens = flat.tokens_of(one), others = flat.tokens_of(other);
            return same(flat.token, tokens, others) && same(flat.amount, tokens, others);
        }
        template <class T>
        static bool same(const Span<T>& list, const Row& one, const Row& other) {
            return std::equal(list.data + one.first, list.data + one.last, list.data + other.first,
                              list.data + other.last);
        }
    };

    // Whether some queue lets what fits pass what does not.
    static bool has_patient(const JobFlat& flat) {
        for (size_t i = 0; i < flat.queues(); ++i) {
            if (!flat.strict[i] && !flat.blocking[i]) return true;
        }
        return false;
    }

    void find_kinds() {
        const bool gated = flat_.gates.size > 0;
        std::unordered_map<int32_t, int32_t, Hash, Alike> found(16, Hash{flat_, gated}, Alike{flat_, gated});
        for (size_t i = 0; i < kind_.size(); ++i) {
            const int32_t instance = static_cast<int32_t>(i), queue = flat_.queue[i];
            if (queue == JobFlat::kNoQueue || flat_.strict[queue] || flat_.blocking[queue]) continue;
            kind_[i] = found.emplace(instance, static_cast<int32_t>(found.size())).first->second;
        }
        kinds_.resize(found.size());
    }

    template <class May>
    int32_t take_fitting(int32_t queue, double inflight, double window, const May& may) {
        std::vector<int32_t>& kinds = in_use_[queue];
        const bool idle = inflight == 0;
        if (!idle && inflight + smallest_[queue] > window) return -1;
        size_t best = kinds.size();
        for (size_t place = 0; place < kinds.size(); ++place) {
            const Ready& ready = kinds_[kinds[place]].top();
            if (best < kinds.size() && ready > kinds_[kinds[best]].top()) continue;
            if (!idle && !(inflight + flat_.size[ready.instance] <= window)) continue;
            if (may(ready.instance)) best = place;
        }
        if (best == kinds.size()) return -1;
        ReadyHeap& chosen = kinds_[kinds[best]];
        const int32_t instance = chosen.top().instance;
        chosen.pop();
        if (chosen.empty()) {
            kinds[best] = kinds.back();
            kinds.pop_back();
        }
        return instance;
    }

    const JobFlat& flat_;
    std::vector<ReadyRuns> blocking_;
    std::vector<double> smallest_;              // per queue
    std::vector<std::vector<int32_t>> in_use_;  // per queue: kinds of which something is ready
    std::vector<int32_t> kind_;                 // per instance
    std::vector<ReadyHeap> kinds_;
};

}  // namespace ringwright
