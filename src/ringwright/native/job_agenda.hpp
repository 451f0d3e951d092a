// What will happen when, in the order of time and then of posting; ends that were overruled are dropped.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "engine_events.hpp"

namespace ringwright {

enum class What : int32_t { done, landed, freed };

struct Happening {
    int64_t time;
    int64_t count;
    What what;
    int32_t who;  // landed: an instance; else a queue
    uint32_t version;

    bool operator>(const Happening& other) const { return time != other.time ? time > other.time : count > other.count; }
};

class Agenda {
public:
    explicit Agenda(size_t queues) : version_(queues), pending_(queues) {}

    static int64_t later(int64_t now, int64_t by) {
        if (by >= kForever - now) throw std::overflow_error("the job takes more than 2**62 ps");
        return now + by;
    }

    void post(int64_t time, What what, int32_t who) { push({time, ++count_, what, who, 0}); }

    // The one instance under way in a queue will end then, whatever was said before.
    void schedule(int64_t time, int32_t queue) {
        overruled_ += pending_[queue];
        pending_[queue] = 1;
        if (overruled_ > heap_.size() / 2 + 1024) drop_overruled(queue);
        push({time, ++count_, What::done, queue, ++version_[queue]});
    }

    // What was said of a queue holds no longer.
    void forget(int32_t queue) {
        overruled_ += pending_[queue];
        pending_[queue] = 0;
    }

    bool empty() const { return heap_.empty(); }
    int64_t time() const { return heap_.front().time; }

    // Take the next; false where it was overruled.
    bool pop(Happening& next) {
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<Happening>());
        next = heap_.back();
        heap_.pop_back();
        if (next.what != What::done) return true;
        if (next.version != version_[next.who] || !pending_[next.who]) {
            --overruled_;
            return false;
        }
        pending_[next.who] = 0;
        return true;
    }

private:
    void push(const Happening& next) {
        heap_.push_back(next);
        std::push_heap(heap_.begin(), heap_.end(), std::greater<Happening>());
    }

    // `queue` is about to be scheduled anew, so its last end is overruled too.
    void drop_overruled(int32_t queue) {
        const auto gone = [&](const Happening& each) {
            if (each.what != What::done) return false;
            return each.who == queue || !pending_[each.who] || each.version != version_[each.who];
        };
        heap_.erase(std::remove_if(heap_.begin(), heap_.end(), gone), heap_.end());
        std::make_heap(heap_.begin(), heap_.end(), std::greater<Happening>());
        overruled_ = 0;
    }

    std::vector<Happening> heap_;
    std::vector<uint32_t> version_;
    std::vector<uint8_t> pending_;  // whether an end is on the heap that counts
    size_t overruled_ = 0;
    int64_t count_ = 0;
};

}  // namespace ringwright
