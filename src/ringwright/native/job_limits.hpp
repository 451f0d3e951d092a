// Gates and tokens of a job, and the queues that they hold up: engines/job/limits.py defines what it means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "job_flat.hpp"

namespace ringwright {

// The queues to look at, each once, the least number first.
class Marked {
public:
    explicit Marked(size_t queues) : marked_(queues) {}

    void touch(int32_t queue) {
        if (marked_[queue]) return;
        marked_[queue] = 1;
        queues_.push(queue);
    }

    bool pop(int32_t& queue) {
        if (queues_.empty()) return false;
        queue = queues_.top();
        queues_.pop();
        marked_[queue] = 0;
        return true;
    }

private:
    std::vector<uint8_t> marked_;
    std::priority_queue<int32_t, std::vector<int32_t>, std::greater<int32_t>> queues_;
};

class JobLimits {
public:
    using Place = std::pair<int64_t, int64_t>;  // key and arrival

    JobLimits(const JobFlat& flat, Marked& marked)
        : flat_(flat), marked_(marked), waiting_(flat.domains * flat.traffics), running_(flat.domains * flat.traffics),
          tagged_(flat.domains * flat.tags), tokens_(flat.capacity.data, flat.capacity.data + flat.capacity.size),
          gates_(flat.traffics), lined_(flat.traffics), lines_(flat.domains * flat.traffics), shut_(flat.domains),
          short_(flat.capacity.size) {
        for (size_t at = 0; at < flat.gates.size; at += 4) {
            const int32_t closed = flat.gates[at];
            if (closed < 0 || closed >= flat.traffics) continue;  // no operation is of that class
            const Gate gate{flat.gates[at + 1], flat.gates[at + 2], flat.gates[at + 3] != 0};
            if (gate.tag < 0 && gate.by == closed && !gate.running) {
                lined_[closed] = 1;
                placed_.resize(flat.n());
            } else {
                gates_[closed].push_back(gate);
            }
        }
    }

    void arrive(int32_t instance, int32_t queue, Place place) {
        if (!is_gated()) return;
        const bool lined = lined_[flat_.traffic[queue]];
        if (lined) placed_[instance] = place;
        each_domain(instance, [&](int32_t at) {
            ++waiting(at, queue);
            if (lined) line(at, queue).insert(place);
        });
    }

    void start(int32_t instance, int32_t queue) {
        if (!is_gated()) return;
        each_domain(instance, [&](int32_t at) {
            --waiting(at, queue);
            ++running(at, queue);
            if (lined_[flat_.traffic[queue]]) line(at, queue).erase(placed_[instance]);
            wake(shut_[at]);
        });
    }

    void finish(int32_t instance, int32_t queue) {
        if (!is_gated()) return;
        each_domain(instance, [&](int32_t at) {
            --running(at, queue);
            wake(shut_[at]);
        });
    }

    void tag(int32_t instance, int32_t by) {
        if (flat_.tag[instance] < 0) return;
        const int32_t domain = flat_.home(instance);
        tagged_[domain * flat_.tags + flat_.tag[instance]] += by;
        if (by < 0) wake(shut_[domain]);
    }

    bool open(int32_t instance, int32_t queue) {
        const auto& gates = gates_[flat_.traffic[queue]];
        const bool lined = lined_[flat_.traffic[queue]];
        if (gates.empty() && !lined) return true;
        const Row domains = flat_.domains_of(instance);
        for (int64_t at = domains.first; at < domains.last; ++at) {
            if (lined && *line(flat_.domain[at], queue).begin() < placed_[instance]) {
                shut_[flat_.domain[at]].insert(queue);
                return false;
            }
            for (const Gate& gate : gates) {
                if (!closes(gate, flat_.domain[at])) continue;
                shut_[flat_.domain[at]].insert(queue);
                return false;
            }
        }
        return true;
    }

    // Whether what an instance wants at its start is there; `take` takes it.
    bool there(int32_t instance, int32_t queue) {
        sum_wanted(instance);
        for (const auto& [pool, amount] : wanted_) {
            if (tokens_[pool] + kSlack * flat_.capacity[pool] < amount) {
                short_[pool].insert(queue);
                return false;
            }
        }
        return true;
    }

    void take(int32_t instance) {
        sum_wanted(instance);
        for (const auto& [pool, amount] : wanted_) tokens_[pool] -= amount;
    }

    void give(int32_t instance) {
        const Row row = flat_.tokens_of(instance);
        for (int64_t at = row.first; at < row.last; ++at) {
            if (!(flat_.amount[at] < 0)) continue;
            tokens_[flat_.token[at]] -= flat_.amount[at];
            wake(short_[flat_.token[at]]);
        }
    }

private:
    static constexpr double kSlack = 1e-9;  // of a pool's capacity

    bool is_gated() const { return flat_.gates.size > 0; }  // else nobody asks what waits and what runs

    struct Gate {
        int32_t by, tag;
        bool running;
    };

    int32_t& waiting(int64_t domain, int32_t queue) { return waiting_[domain * flat_.traffics + flat_.traffic[queue]]; }
    int32_t& running(int64_t domain, int32_t queue) { return running_[domain * flat_.traffics + flat_.traffic[queue]]; }

    std::set<Place>& line(int64_t domain, int32_t queue) { return lines_[domain * flat_.traffics + flat_.traffic[queue]]; }

    template <class Do>
    void each_domain(int32_t instance, const Do& act) {
        const Row row = flat_.domains_of(instance);
        for (int64_t at = row.first; at < row.last; ++at) act(flat_.domain[at]);
    }

    bool closes(const Gate& gate, int64_t domain) const {
        if (gate.tag >= 0) return tagged_[domain * flat_.tags + gate.tag] != 0;
        return (gate.running ? running_ : waiting_)[domain * flat_.traffics + gate.by] != 0;
    }

    void sum_wanted(int32_t instance) {
        wanted_.clear();
        const Row row = flat_.tokens_of(instance);
        for (int64_t at = row.first; at < row.last; ++at) {
            if (!(flat_.amount[at] > 0)) continue;
            size_t place = 0;
            while (place < wanted_.size() && wanted_[place].first != flat_.token[at]) ++place;
            if (place == wanted_.size()) wanted_.emplace_back(flat_.token[at], 0.0);
            wanted_[place].second += flat_.amount[at];
        }
    }

    void wake(std::set<int32_t>& queues) {
        if (queues.empty()) return;
        for (const int32_t queue : queues) marked_.touch(queue);
        queues.clear();
    }

    const JobFlat& flat_;
    Marked& marked_;
    std::vector<int32_t> waiting_, running_, tagged_;  // per domain and class or tag
    std::vector<double> tokens_;
    std::vector<std::vector<Gate>> gates_;  // by the class that they close
    std::vector<uint8_t> lined_;  // classes that are closed by themselves waiting: one line a domain
    std::vector<std::set<Place>> lines_;
    std::vector<Place> placed_;  // per instance
    std::vector<std::set<int32_t>> shut_, short_;
    std::vector<std::pair<int32_t, double>> wanted_;
};

}  // namespace ringwright
