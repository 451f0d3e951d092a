// A queue of events for simulations whose time only goes forward: a ring of buckets, each sorted when its turn comes.
//
// Collectives move in step, so most buckets fill in order and need no sorting. Events for the bucket being emptied go to
// a small heap beside it; events beyond the ring wait in another heap. Order is (time, message), whatever the width.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

namespace ringwright {

struct Event {
    int64_t time;
    int32_t message;
    int32_t hop;  // which hop of the message's way

    bool operator<(const Event& other) const {
        return time != other.time ? time < other.time : message < other.message;
    }
    bool operator>(const Event& other) const { return other < *this; }
};

// `Event` has a `time` and an order.
template <class Event>
class CalendarOf {
public:
    // `width` is how many picoseconds share a bucket, about; any value gives the same order.
    explicit CalendarOf(int64_t width) : buckets_(kBuckets), filled_(kBuckets / 64) {
        while (shift_ < 50 && (int64_t{2} << shift_) <= width) ++shift_;
    }

    void push(const Event& event) {
        ++size_;
        const int64_t slot = event.time >> shift_;
        if (slot <= slot_) {
            late_.push(event);
        } else if (slot < slot_ + kBuckets) {
            put(slot, event);
        } else {
            far_.push(event);
        }
    }

    // Take the least event; false where there is none.
    bool pop(Event& event) {
        for (;;) {
            const bool sorted = next_ < current_.size();
            if (!late_.empty() && (!sorted || late_.top() < current_[next_])) {
                event = late_.top();
                late_.pop();
                --size_;
                return true;
            }
            if (sorted) {
                event = current_[next_++];
                --size_;
                return true;
            }
            if (!advance()) return false;
        }
    }

    size_t size() const { return size_; }

    // The least event, or none; it stays.
    const Event* least() {
        for (;;) {
            const bool sorted = next_ < current_.size();
            if (!late_.empty() && (!sorted || late_.top() < current_[next_])) return &late_.top();
            if (sorted) return &current_[next_];
            if (!advance()) return nullptr;
        }
    }

private:
    static constexpr int64_t kBuckets = 4096;
    static constexpr size_t kRuns = 16;
    using Heap = std::priority_queue<Event, std::vector<Event>, std::greater<Event>>;

    void put(int64_t slot, const Event& event) {
        const int64_t at = slot & (kBuckets - 1);
        buckets_[at].push_back(event);
        filled_[at >> 6] |= uint64_t{1} << (at & 63);
    }

    bool advance() {
        current_.clear();
        next_ = 0;
        const int64_t ahead = next_filled();
        if (ahead > 0) {
            slot_ += ahead;
        } else if (!far_.empty()) {
            slot_ = far_.top().time >> shift_;
        } else {
            return false;
        }
        while (!far_.empty() && (far_.top().time >> shift_) < slot_ + kBuckets) {
            put(far_.top().time >> shift_, far_.top());
            far_.pop();
        }
        const int64_t at = slot_ & (kBuckets - 1);
        filled_[at >> 6] &= ~(uint64_t{1} << (at & 63));
        current_.swap(buckets_[at]);
        sort();
        return true;
    }

    // Collectives fill a bucket in a few rising runs (rank p-1 hands over to rank 0): merge those, sort what is wilder.
    void sort() {
        runs_.assign(1, 0);
        for (size_t i = 1; i < current_.size() && runs_.size() <= kRuns; ++i) {
            if (current_[i] < current_[i - 1]) runs_.push_back(i);
        }
        if (runs_.size() == 1) return;
        if (runs_.size() > kRuns) {
            std::sort(current_.begin(), current_.end());
            return;
        }
        runs_.push_back(current_.size());
        while (runs_.size() > 2) {  // merge neighbours
            merged_.resize(current_.size());
            size_t kept = 1;
            for (size_t run = 0; run + 1 < runs_.size(); run += 2) {
                const auto at = [this](size_t index) { return current_.begin() + static_cast<std::ptrdiff_t>(index); };
                const size_t middle = runs_[run + 1], stop = run + 2 < runs_.size() ? runs_[run + 2] : middle;
                std::merge(at(runs_[run]), at(middle), at(middle), at(stop),
                           merged_.begin() + static_cast<std::ptrdiff_t>(runs_[run]));
                runs_[kept++] = stop;
            }
            runs_.resize(kept);
            current_.swap(merged_);
        }
    }

    // How many slots from here to the next bucket that holds something, or 0.
    int64_t next_filled() const {
        const int64_t from = (slot_ + 1) & (kBuckets - 1);
        const int64_t words = kBuckets / 64;
        for (int64_t step = 0; step <= words; ++step) {
            const int64_t word = ((from >> 6) + step) & (words - 1);
            uint64_t bits = filled_[word];
            if (step == 0) bits &= ~uint64_t{0} << (from & 63);
            if (step == words) bits &= ~(~uint64_t{0} << (from & 63));
            if (bits) return ((word * 64 + __builtin_ctzll(bits) - from) & (kBuckets - 1)) + 1;
        }
        return 0;
    }

    int shift_ = 0;
    int64_t slot_ = -1;
    size_t next_ = 0, size_ = 0;
    std::vector<Event> current_, merged_;
    std::vector<size_t> runs_;
    std::vector<std::vector<Event>> buckets_;
    std::vector<uint64_t> filled_;
    Heap late_, far_;
};

using Calendar = CalendarOf<Event>;

}  // namespace ringwright
