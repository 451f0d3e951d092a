// Work under way in a job, at most one instance a queue: engines/job/rates.py defines what it means.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "job_agenda.hpp"
#include "job_flat.hpp"

namespace ringwright {

class JobRates {
public:
    JobRates(const JobFlat& flat, Agenda& agenda)
        : flat_(flat), agenda_(agenda), under_way_(flat.queues()), on_(flat.resources), level_(flat.resources, kUnbounded),
          streak_(flat.resources, JobFlat::kNoQueue), computing_(flat.domains), beside_(flat.domains), sms_(flat.domains),
          seen_(flat.queues()) {}

    void begin_compute(int32_t instance, int64_t now) {
        const int32_t queue = take_in(instance), domain = flat_.home(instance);
        computing_[domain].push_back(queue);
        begin(queue, compute_rate(queue, domain), now);
    }

    void end_compute(int32_t instance) { drop(computing_[flat_.home(instance)], flat_.queue[instance]); }

    // `many` of the instance, one behind the other, where nobody else is on its links.
    void begin_wire(int32_t instance, int32_t many, int64_t now) {
        const int32_t queue = take_in(instance);
        const Row loads = flat_.loads_of(instance), domains = flat_.domains_of(instance);
        for (int64_t at = loads.first; at < loads.last; ++at) {
            on_[flat_.load[at]].push_back({queue, flat_.share[at], flat_.claim[at]});
            if (many > 1) streak_[flat_.load[at]] = queue;
        }
        resettle(loads, queue, now);
        under_way_[queue].left *= many;
        begin(queue, wire_rate(instance), now);
        for (int64_t at = domains.first; slows() && at < domains.last; ++at) {
            beside_[flat_.domain[at]].push_back(queue);
            slow(flat_.domain[at], now);
        }
    }

    // Of pieces that were under way as one, this one goes on alone, as it has since.
    void single(int32_t instance, int64_t since) {
        const int32_t queue = flat_.queue[instance];
        const Row loads = flat_.loads_of(instance);
        for (int64_t at = loads.first; at < loads.last; ++at) streak_[flat_.load[at]] = JobFlat::kNoQueue;
        under_way_[queue] = {instance, flat_.work[instance], since, 1.0};
        agenda_.schedule(Agenda::later(since, flat_.work[instance]), queue);
    }

    // Whether an instance would have its links to itself, and full rate.
    bool is_free(int32_t instance) const {
        const Row loads = flat_.loads_of(instance);
        for (int64_t at = loads.first; at < loads.last; ++at) {
            if (!on_[flat_.load[at]].empty() || !(flat_.share[at] <= 1.0)) return false;
        }
        return true;
    }

    // A queue whose pieces go as one over a link of an instance; kNoQueue for none.
    int32_t streak_beside(int32_t instance) const {
        const Row loads = flat_.loads_of(instance);
        for (int64_t at = loads.first; at < loads.last; ++at) {
            if (streak_[flat_.load[at]] != JobFlat::kNoQueue) return streak_[flat_.load[at]];
        }
        return JobFlat::kNoQueue;
    }

    void end_wire(int32_t instance, int64_t now) {
        const int32_t queue = flat_.queue[instance];
        const Row loads = flat_.loads_of(instance), domains = flat_.domains_of(instance);
        for (int64_t at = loads.first; at < loads.last; ++at) {
            drop(on_[flat_.load[at]], Load{queue, flat_.share[at], flat_.claim[at]});
            streak_[flat_.load[at]] = JobFlat::kNoQueue;
        }
        resettle(loads, JobFlat::kNoQueue, now);
        for (int64_t at = domains.first; slows() && at < domains.last; ++at) {
            drop(beside_[flat_.domain[at]], queue);
            slow(flat_.domain[at], now);
        }
    }

private:
    static constexpr double kUnbounded = std::numeric_limits<double>::infinity();
    struct Work {
        int32_t instance;
        int64_t left, since;
        double rate;
    };
    struct Load {
        int32_t queue;
        double share, claim;
        bool operator==(const Load& other) const { return queue == other.queue && share == other.share; }
    };

    // Take the first of that value out; the others keep their order, in which sums are taken.
    template <class T>
    static void drop(std::vector<T>& list, const T& value) {
        list.erase(std::find(list.begin(), list.end(), value));
    }

    int32_t take_in(int32_t instance) {
        const int32_t queue = flat_.queue[instance];
        under_way_[queue] = {instance, flat_.work[instance], 0, 1.0};
        return queue;
    }

    bool slows() const { return flat_.interference.model != Model::none; }

    void slow(int32_t domain, int64_t now) {
        double sms = 0;
        for (const int32_t other : beside_[domain]) sms += flat_.sms[under_way_[other].instance];
        sms_[domain] = sms;
        for (const int32_t queue : computing_[domain]) settle(queue, compute_rate(queue, domain), now);
    }

    double compute_rate(int32_t queue, int32_t domain) const {
        const int32_t tiles = flat_.tiles[under_way_[queue].instance];
        return 1.0 / flat_.interference.slowed(sms_[domain], beside_[domain].size(), tiles);
    }

    // All sums before any rate; `fresh` is being put on the wire and has no rate yet.
    void resettle(const Row& loads, int32_t fresh, int64_t now) {
        changed_.clear();
        for (int64_t at = loads.first; at < loads.last; ++at) {
            const int32_t resource = flat_.load[at];
            const double before = level_[resource];
            level_[resource] = level(on_[resource]);
            if (level_[resource] != before) changed_.push_back(resource);
        }
        ++turn_;
        for (const int32_t resource : changed_) {
            for (const Load& load : on_[resource]) {
                if (load.queue == fresh || seen_[load.queue] == turn_) continue;
                seen_[load.queue] = turn_;
                settle(load.queue, wire_rate(under_way_[load.queue].instance), now);
            }
        }
    }

    // What a resource gives for each unit of claim: operations that ask for less get what they ask for, the others share the rest.
    double level(const std::vector<Load>& loads) {
        double total = 0, left = 1.0, claims = 0;
        asking_.clear();
        for (const Load& load : loads) {
            total += load.share;
            if (load.claim < kUnbounded) {
                asking_.push_back(load);
            } else {
                left -= load.share;
            }
        }
        if (total <= 1.0) return kUnbounded;
        left = std::max(left, 0.0);
        std::sort(asking_.begin(), asking_.end(), [](const Load& one, const Load& other) {
            return std::pair(one.share / one.claim, one.claim) < std::pair(other.share / other.claim, other.claim);
        });
        for (auto load = asking_.rbegin(); load != asking_.rend(); ++load) claims += load->claim;
        for (const Load& load : asking_) {
            const double each = left / claims;
            if (load.share / load.claim > each) return each;
            left -= load.share;
            claims -= load.claim;
        }
        return kUnbounded;
    }

    double wire_rate(int32_t instance) const {
        double rate = 1.0;
        const Row loads = flat_.loads_of(instance);
        for (int64_t at = loads.first; at < loads.last; ++at) {
            const double most = level_[flat_.load[at]] * flat_.claim[at];
            if (most < flat_.share[at]) rate = std::min(rate, most / flat_.share[at]);
        }
        return rate;
    }

    void begin(int32_t queue, double rate, int64_t now) {
        Work& work = under_way_[queue];
        work.rate = rate;
        work.since = now;
        int64_t lasts = work.left;
        if (!(rate > 0.0)) {
            agenda_.forget(queue);  // until a resource of it is there again
            return;
        }
        if (rate != 1.0) {
            const double exact = std::ceil(static_cast<double>(work.left) / rate);
            if (!(exact < static_cast<double>(kForever))) throw std::overflow_error("the job takes more than 2**62 ps");
            lasts = static_cast<int64_t>(exact);
        }
        agenda_.schedule(Agenda::later(now, lasts), queue);
    }

    void settle(int32_t queue, double rate, int64_t now) {
        Work& work = under_way_[queue];
        if (rate == work.rate) return;
        const double done = static_cast<double>(now - work.since) * work.rate;
        work.left = std::max<int64_t>(0, work.left - static_cast<int64_t>(std::floor(done + 0.5)));
        begin(queue, rate, now);
    }

    const JobFlat& flat_;
    Agenda& agenda_;
    std::vector<Work> under_way_;  // per queue
    std::vector<std::vector<Load>> on_;
    std::vector<double> level_;
    std::vector<int32_t> streak_;  // by resource: whose pieces go over it as one
    std::vector<Load> asking_;
    std::vector<std::vector<int32_t>> computing_, beside_;  // per domain: queues
    std::vector<double> sms_;
    std::vector<int32_t> changed_;
    std::vector<uint64_t> seen_;
    uint64_t turn_ = 0;
};

}  // namespace ringwright
