// Pieces alike that follow one another in a queue: as long as nobody else is on their links, they go under way as one.
//
// Each of them would end, and the next begin, without a change for anybody: nobody's rate changes where links are not shared, and
// whoever waits for one of them waits for a later one too. So a streak ends once, at the end of its last piece, and is cut where
// something more urgent comes to its queue or somebody else to its links (`JobLoop::cut`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "job_flat.hpp"

namespace ringwright {

class Streaks {
public:
    explicit Streaks(const JobFlat& flat) : flat_(flat) {
        if (flat.gates.size || flat.interference.model != Model::none) return;
        behind_.resize(flat.n());
        for (size_t i = flat.n() < 2 ? 0 : flat.n() - 1; i-- > 0;) {
            const int32_t instance = static_cast<int32_t>(i);
            if (is_one_by_one(instance) && are_alike(instance, instance + 1)) behind_[i] = 1 + behind_[i + 1];
        }
    }

    // How many pieces behind one may go under way with it. Of pieces alike the last goes alone, for it may release somebody.
    int32_t behind(int32_t instance) const { return behind_.empty() || behind_[instance] < 2 ? 0 : behind_[instance] - 1; }

private:
    // Whether it is sent at once, alone, and holds the queue until it has ended.
    bool is_one_by_one(int32_t instance) const {
        const int32_t queue = flat_.queue[instance];
        if (queue == JobFlat::kNoQueue || flat_.strict[queue] || !flat_.blocking[queue] || flat_.issue[queue]) return false;
        const Row tokens = flat_.tokens_of(instance);
        return flat_.work[instance] > 0 && !flat_.latency[instance] && flat_.size[instance] >= flat_.window[queue] &&
               tokens.first == tokens.last;
    }

    bool are_alike(int32_t one, int32_t other) const {
        const Row tokens = flat_.tokens_of(other);
        return flat_.queue[one] == flat_.queue[other] && flat_.work[one] == flat_.work[other] && !flat_.latency[other] &&
               flat_.size[one] == flat_.size[other] && tokens.first == tokens.last &&
               same(flat_.loads_of(one), flat_.loads_of(other), flat_.load, flat_.share, flat_.claim) &&
               same(JobFlat::row(flat_.after_start, one), JobFlat::row(flat_.after_start, other), flat_.after, flat_.after_many);
    }

    template <class... Columns>
    static bool same(const Row& one, const Row& other, const Columns&... columns) {
        if (one.last - one.first != other.last - other.first) return false;
        for (int64_t at = 0; at < one.last - one.first; ++at) {
            if (!((columns[one.first + at] == columns[other.first + at]) && ...)) return false;
        }
        return true;
    }

    const JobFlat& flat_;
    std::vector<int32_t> behind_;  // by instance: how many alike follow it
};

}  // namespace ringwright
