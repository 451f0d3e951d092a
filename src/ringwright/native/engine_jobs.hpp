// The event loop of jobs; engines/job/loop.py defines what it means, and both agree to the picosecond.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "job_agenda.hpp"
#include "job_flat.hpp"
#include "job_limits.hpp"
#include "job_rates.hpp"
#include "job_ready.hpp"
#include "job_streaks.hpp"

namespace ringwright {

class JobLoop {
public:
    explicit JobLoop(const JobFlat& flat)
        : ready(flat.n(), -1), start(flat.n(), -1), moved(flat.n(), -1), end(flat.n(), -1), flat_(flat),
          waits_(flat.n()), landed_(flat.n()), queues_(flat.queues()), agenda_(flat.queues()), marked_(flat.queues()),
          rates_(flat, agenda_), limits_(flat, marked_), ready_(flat), streaks_(flat) {
        for (size_t i = 0; i < flat.n(); ++i) waits_[i] = static_cast<int32_t>(flat.waits[i]);
        set_orders();
    }

    // `pause` is called now and then, and may throw.
    template <class Pause>
    void run(const Pause& pause) {
        for (size_t i = 0; i < flat_.n(); ++i) {
            if (flat_.waits[i] == 0) become_ready(static_cast<int32_t>(i), 0);
        }
        dispatch(0);
        while (!agenda_.empty()) {
            const int64_t now = agenda_.time();
            Happening next;
            while (!agenda_.empty() && agenda_.time() == now) {
                if (!agenda_.pop(next)) continue;
                if ((++turns_ & kPause) == 0) pause();
                ++events;
                happen(next, now);
            }
            dispatch(now);
        }
    }

    std::vector<int64_t> ready, start, moved, end;
    int64_t events = 0;

private:
    static constexpr int64_t kPause = (1 << 18) - 1;
    static constexpr int32_t kNobody = -1;

    struct Queue {
        int64_t next = 0, stop = 0;  // strict: places in `order_`
        double inflight = 0;
        int64_t flying = 0;
        int64_t busy_until = 0;
        int32_t moving = kNobody;
        int32_t many = 1;           // pieces under way as one from `moving` on, see job_streaks.hpp
        int64_t arrival = 0;        // of the first of them
        size_t head = 0;            // of the wire
        std::vector<int32_t> wire;  // issued, in that order; those before the head have moved
    };

    void happen(const Happening& next, int64_t now) {
        if (next.what == What::done) {
            finish(queues_[next.who].moving, next.who, now);
        } else if (next.what == What::landed) {
            landed_[next.who] = 1;
            move(flat_.queue[next.who], now);
        } else {
            marked_.touch(next.who);
        }
    }

    void become_ready(int32_t first, int64_t now) {
        stack_.assign(1, first);
        while (!stack_.empty()) {
            const int32_t instance = stack_.back(), queue = flat_.queue[instance];
            stack_.pop_back();
            ready[instance] = now;
            if (queue == JobFlat::kNoQueue) {
                start[instance] = moved[instance] = end[instance] = now;
                limits_.give(instance);
                const size_t before = stack_.size();
                release(instance, stack_);
                std::reverse(stack_.begin() + static_cast<std::ptrdiff_t>(before), stack_.end());
                continue;
            }
            marked_.touch(queue);
            if (flat_.strict[queue]) continue;
            if (queues_[queue].many > 1 && flat_.key[instance] < flat_.key[queues_[queue].moving]) cut(queue, now);
            ready_.push(queue, {flat_.key[instance], ++arrivals_, instance});
            limits_.arrive(instance, queue, {flat_.key[instance], arrivals_});
        }
    }

    void release(int32_t instance, std::vector<int32_t>& found) {
        const Row row = JobFlat::row(flat_.after_start, instance);
        for (int64_t at = row.first; at < row.last; ++at) {
            const int32_t first = static_cast<int32_t>(flat_.after[at]), behind = first + static_cast<int32_t>(flat_.after_many[at]);
            bool some = false;  // of a run most often none: two loops, the first of them without a branch
            for (int32_t after = first; after < behind; ++after) some |= --waits_[after] == 0;
            for (int32_t after = first; some && after < behind; ++after) {
                if (waits_[after] == 0) found.push_back(after);
            }
        }
    }

    void finish(int32_t instance, int32_t number, int64_t now) {
        if (queues_[number].many > 1) instance = end_pieces(queues_[number], queues_[number].many - 1);
        leave(instance, number, now);
        limits_.give(instance);
        released_.clear();
        release(instance, released_);
        for (const int32_t after : released_) become_ready(after, now);
    }

    void leave(int32_t instance, int32_t number, int64_t now) {
        Queue& queue = queues_[number];
        end[instance] = now;
        queue.moving = kNobody;
        if (flat_.strict[number]) {
            rates_.end_compute(instance);
            limits_.tag(instance, -1);
        } else {
            --queue.flying;
            queue.inflight = queue.flying ? queue.inflight - flat_.size[instance] : 0.0;
            rates_.end_wire(instance, now);
            limits_.finish(instance, number);
            move(number, now);
        }
        marked_.touch(number);
    }

    // So many of the pieces under way as one have ended, none of which is the last that somebody waits for; return the next.
    int32_t end_pieces(Queue& queue, int32_t count) {
        const int32_t first = queue.moving;
        const int64_t each = flat_.work[first];
        int64_t at = moved[first];
        for (int32_t piece = first; piece < first + count; ++piece) {
            start[piece] = moved[piece] = at;
            end[piece] = at += each;
        }
        start[first + count] = moved[first + count] = at;
        count_off(first, count);
        queue.many = 1;
        return queue.moving = first + count;
    }

    // So many alike have ended, and nobody is released by them.
    void count_off(int32_t instance, int32_t count) {
        const Row row = JobFlat::row(flat_.after_start, instance);
        for (int64_t run = row.first; run < row.last; ++run) {
            for (int64_t after = flat_.after[run]; after < flat_.after[run] + flat_.after_many[run]; ++after) waits_[after] -= count;
        }
        events += count;
    }

    // Pieces under way as one become single again, since something happens to their queue or on their links: those that have
    // not begun wait in the queue. Where one ends just now, it does; the next begins at the queue's turn.
    void cut(int32_t number, int64_t now) {
        Queue& queue = queues_[number];
        const int32_t first = queue.moving, many = queue.many;
        const int64_t each = flat_.work[first], over = now - moved[first];
        const bool between = over > 0 && over % each == 0 && dispatched_ < now && dispatching_ < number;
        const int32_t ended = static_cast<int32_t>(over / each) - between, next = end_pieces(queue, ended), left = many - ended - 1;
        if (left > 0) ready_.put_back(number, {flat_.key[next], queue.arrival + ended + 1, next + 1}, left);
        if (between) {
            agenda_.forget(number);
            count_off(next, 1);
            leave(next, number, now);
        } else {
            rates_.single(next, moved[next]);
        }
    }

    void dispatch(int64_t now) {
        while (marked_.pop(dispatching_)) {
            if (flat_.strict[dispatching_]) {
                next_of_stream(dispatching_, now);
            } else {
                next_of_communication(dispatching_, now);
            }
        }
        dispatching_ = kNobody;
        dispatched_ = now;
    }

    void next_of_stream(int32_t number, int64_t now) {
        Queue& queue = queues_[number];
        if (queue.moving != kNobody || queue.next >= queue.stop) return;
        const int32_t instance = order_[queue.next];
        if (waits_[instance] || !limits_.there(instance, number)) return;
        limits_.take(instance);
        ++queue.next;
        queue.moving = instance;
        start[instance] = moved[instance] = now;
        limits_.tag(instance, 1);
        rates_.begin_compute(instance, now);
    }

    void next_of_communication(int32_t number, int64_t now) {
        const auto may = [this, number](int32_t instance) {
            return limits_.open(instance, number) && limits_.there(instance, number);
        };
        while (!ready_.empty(number) && now >= queues_[number].busy_until) {
            const int32_t instance = ready_.take(number, queues_[number].inflight, may);
            if (instance < 0) return;
            limits_.take(instance);
            queues_[number].many = 1;
            if (streaks_.behind(instance) && !queues_[number].flying && rates_.is_free(instance)) gather(instance, queues_[number], number, now);
            issue(instance, number, now);
        }
    }

    // Let the pieces behind this one that are like it go under way with it.
    void gather(int32_t instance, Queue& queue, int32_t number, int64_t now) {
        const int64_t most = std::min<int64_t>(streaks_.behind(instance), (kForever - now - 1) / flat_.work[instance] - 1);
        if (most < 1) return;
        const Run taken = ready_.more(number, instance, static_cast<int32_t>(most));
        queue.many = 1 + taken.many;
        queue.arrival = taken.first.arrival - 1;
    }

    void issue(int32_t instance, int32_t number, int64_t now) {
        Queue& queue = queues_[number];
        const int64_t issue = flat_.issue[number], delay = issue + flat_.latency[instance];
        start[instance] = now;
        queue.inflight += flat_.size[instance];
        ++queue.flying;
        limits_.start(instance, number);
        queue.wire.push_back(instance);
        if (issue) {
            queue.busy_until = Agenda::later(now, issue);
            agenda_.post(queue.busy_until, What::freed, number);
        }
        if (delay) {
            agenda_.post(Agenda::later(now, delay), What::landed, instance);
        } else {
            landed_[instance] = 1;
            move(number, now);
        }
    }

    void move(int32_t number, int64_t now) {
        Queue& queue = queues_[number];
        if (queue.moving != kNobody || queue.head == queue.wire.size() || !landed_[queue.wire[queue.head]]) return;
        const int32_t instance = queue.wire[queue.head++];
        if (queue.head == queue.wire.size()) {
            queue.wire.clear();
            queue.head = 0;
        }
        queue.moving = instance;
        moved[instance] = now;
        for (int32_t other = rates_.streak_beside(instance); other != kNobody; other = rates_.streak_beside(instance)) cut(other, now);
        rates_.begin_wire(instance, queue.many, now);
    }

    // The instances of each strict queue by key, then by number.
    void set_orders() {
        for (size_t i = 0; i < flat_.n(); ++i) {
            if (in_order(i)) ++queues_[flat_.queue[i]].stop;
        }
        int64_t total = 0;
        for (Queue& queue : queues_) {
            queue.next = total;
            total += queue.stop;
            queue.stop = queue.next;
        }
        order_.resize(total);
        for (size_t i = 0; i < flat_.n(); ++i) {
            if (in_order(i)) order_[queues_[flat_.queue[i]].stop++] = static_cast<int32_t>(i);
        }
        const auto before = [this](int32_t one, int32_t other) { return flat_.key[one] < flat_.key[other]; };
        for (const Queue& queue : queues_) {
            const auto first = order_.begin() + queue.next, last = order_.begin() + queue.stop;
            if (!std::is_sorted(first, last, before)) std::stable_sort(first, last, before);
        }
    }

    bool in_order(size_t i) const { return flat_.queue[i] != JobFlat::kNoQueue && flat_.strict[flat_.queue[i]]; }

    const JobFlat& flat_;
    std::vector<int32_t> waits_;
    std::vector<uint8_t> landed_;  // whose latency is over
    std::vector<Queue> queues_;
    std::vector<int32_t> order_, stack_, released_;
    Agenda agenda_;
    Marked marked_;
    JobRates rates_;
    JobLimits limits_;
    ReadyLists ready_;
    Streaks streaks_;
    int64_t arrivals_ = 0, turns_ = 0, dispatched_ = -1;
    int32_t dispatching_ = kNobody;  // the queue whose turn it is
};

}  // namespace ringwright
