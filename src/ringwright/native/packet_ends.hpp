// Part of PacketLoop: senders and receivers; engines/packets/sender.py and receiver.py define what they do.

static constexpr int32_t kReordered = 3, kAtOnce = 16;
static constexpr int64_t kLocalPackets = 2;
static constexpr int64_t kProbePs = 2'000'000'000, kLonePs = 200'000'000'000;

// Sender.

void go_on(PacketConnection& c, int64_t now) {
    if (!c.reliable) {
        send_whole(c, now);
        return;
    }
    if (rules_.is_tcp && c.una == c.nxt && c.nxt < c.end) c.woken(now, rto(c));
    const int32_t before = c.nxt;
    bool limited = false;
    for (;;) {
        const bool again = !c.missing.empty();
        if (!again && c.nxt >= c.end) break;
        if (c.pipe() >= c.window()) {
            limited = true;
            break;
        }
        const int64_t wait = held_until(c, now, again);
        if (wait > now) {
            c.waits_to_send = true;
            c.send_at = wait;
            break;
        }
        if (c.local >= kLocalPackets && queues(c)) break;  // the NIC takes the next when one has left
        if (again) {
            const int32_t number = c.missing.front();
            c.missing.erase(c.missing.begin());
            submit(c, number, now);
        } else {
            send_new(c, now);
        }
    }
    if (!rules_.is_tcp) {
        c.limited = limited;
    } else {
        limited = limited || c.pipe() >= c.window();
        if (c.nxt > before || limited) c.sent(now, rto(c), limited);
    }
    set_timer(c, now);
}

void send_whole(PacketConnection& c, int64_t now) {
    while (c.nxt < c.end) {
        PacketEvent event;
        event.time = event.sent = event.tail = now;
        event.kind = kData;
        event.owner = c.number;
        event.number = c.nxt;
        event.size = c.parts[c.part_of(c.nxt)].size;
        follow(event, c, 0);
        ++c.nxt;
        queue_.push(event);
    }
}

int64_t held_until(PacketConnection& c, int64_t now, bool again) {
    int64_t until = c.spaced(now) > 0.0 ? c.send_at : 0;
    if (rules_.is_tcp && c.local_until > now) {
        const int64_t most = c.local_most(again);
        if (c.waiting(now) >= most) until = std::max(until, c.leaving[c.leaving.size() - static_cast<size_t>(most)]);
    }
    return until;
}

void send_new(PacketConnection& c, int64_t now) {
    const int64_t count = rules_.trains ? train(c, now) : 1;
    if (count > 1) {
        submit_train(c, static_cast<int32_t>(count), now);
    } else {
        ++c.nxt;
        submit(c, c.nxt - 1, now);
    }
}

int64_t train(PacketConnection& c, int64_t now) {
    const PacketPort& port = ports_.at[way_of(c, 0)[0]];
    const bool plain = !port.gate && c.n_paths == 1 && !port.changes && !port.holds && port.buffer >= kEndless;
    if (!plain || ports_.burst || c.partner >= 0 || c.control == kDcqcn || c.control == kBbr || rules_.goes_back) return 1;
    const PacketPart& part = c.parts[c.part_of(c.nxt)];
    const int64_t full = part.first + part.size / c.payload - c.nxt;
    int64_t room = c.window() - c.pipe();
    if (rules_.is_tcp) {
        room = std::min(room, c.local_most(false) - c.waiting(now) + (port.free <= now ? 1 : 0));
    }
    return std::max<int64_t>(1, std::min(full, room));
}

void submit_train(PacketConnection& c, int32_t count, int64_t now) {
    const PacketWay path = way_of(c, 0);
    const int32_t number = path[0];
    PacketPort& port = ports_.at[number];
    const int64_t apart = c.apart_ps, begin = std::max(now, port.free);
    for (int32_t i = 0; i < count; ++i) {
        ++port.count;
        ports_.note(number, now, ports_.backlog(number, now));
        port.free = begin + (i + 1) * apart;
        port.bytes += c.wire;
        record(c, c.nxt + i, rules_.is_tcp ? now : begin + i * apart);
        if (rules_.is_tcp) c.leaving.add(begin + i * apart, now);
    }
    hops += count;
    const int64_t latency = ports_.latency(number, begin);
    PacketEvent event;
    event.tail = std::max(begin + apart, now) + latency;
    event.time = path.length == 1 ? event.tail : begin + latency;
    event.kind = kData;
    event.owner = c.number;
    event.number = c.nxt;
    event.hop = 1;
    event.sent = rules_.is_tcp ? now : begin;
    event.more = count - 1;
    event.size = c.wire;
    follow(event, c, 0);
    c.nxt += count;
    c.went += c.recovering ? count : 0;
    c.sent_at = now;
    c.ever = std::max(c.ever, c.nxt);
    c.local_until = begin + (count - 1) * apart;
    queue_.push(event);
}

void submit(PacketConnection& c, int32_t number, int64_t now) {
    PacketNode* node = pool_.take(PacketEvent());
    PacketEvent& event = node->event;
    const int64_t size = c.bytes_of(number, c.part_of(number)) + rules_.header;
    const int32_t chosen = chosen_path(c, number, now);
    const PacketWay path = way_of(c, chosen);
    const double gap = c.spaced(now);
    if (gap > 0.0) c.send_at = std::max(now, c.send_at) + static_cast<int64_t>(static_cast<double>(size) * gap);
    if (c.recovering) ++c.went;
    if (number < c.ever) retransmitted += size;
    c.ever = std::max(c.ever, number + 1);
    c.sent_at = now;
    event.time = event.sent = event.tail = now;
    event.size = size;
    event.kind = kData;
    event.owner = c.number;
    event.number = number;
    follow(event, c, chosen);
    int64_t at = now;
    if (!queues(c)) {
        const int64_t leaves = ports_.begin(path[0], now);
        if (rules_.is_tcp) {
            c.leaving.add(leaves, now);
        } else {
            event.sent = at = leaves;
        }
        pass_open(path, node);
        c.local_until = leaves;
    } else {
        ++c.local;
        enqueue(path, node);
    }
    record(c, number, at);
    if (c.partner >= 0) carry(c, number);
}

void carry(PacketConnection& c, int32_t number) {
    PacketConnection& other = connections_[c.partner];
    CarriedAnswer& answer = carried_[c.number][number];
    answer = {other.unanswered ? other.expected : -1, other.heard_number, other.heard_sent};
    other.unanswered = 0;
}

void carried(PacketConnection& c, const PacketEvent& event) {
    if (c.partner < 0) return;
    const auto known = carried_[c.number].find(event.number);
    if (known == carried_[c.number].end() || known->second.number < 0) return;
    PacketEvent told;
    told.time = told.tail = event.time;
    told.kind = kAck;
    told.owner = c.partner;
    told.number = known->second.number;
    told.sent = known->second.sent;
    told.more = known->second.more;
    answer(connections_[c.partner], told);
}

bool queues(const PacketConnection& c) const { return ports_.at[way_of(c, 0)[0]].gate != kDrop; }

void left_host(PacketConnection& c, int64_t now) {
    --c.local;
    go_on(c, now);
}

void record(PacketConnection& c, int32_t number, int64_t at) {
    if (rules_.goes_back) return;
    const int64_t since = c.delivered_at ? c.delivered_at : at;
    SentPacket* known = c.record(number);
    if (known) {
        *known = {at, c.delivered, since, kOut, true};
    } else {
        c.records.push_back({at, c.delivered, since, kOut, false});
    }
}

int32_t chosen_path(const PacketConnection& c, int32_t number, int64_t now) const {
    const int32_t n = c.n_paths;
    if (n == 1) return 0;
    const int32_t first = static_cast<int32_t>((int64_t{c.number} + number) % n);
    if (rules_.routing == 1) return first;
    if (rules_.routing != 2) return 0;
    int32_t best = first;
    int64_t least = kForever;
    for (int32_t step = 0; step < n; ++step) {
        const int32_t path = (first + step) % n;
        const int64_t waiting = ports_.backlog(way_of(c, path)[c.fork], now);
        if (waiting < least) {
            least = waiting;
            best = path;
        }
    }
    return best;
}

void answer(PacketConnection& c, const PacketEvent& event) {
    if (event.says == kNotice) {
        c.noticed(event.time);
        return;
    }
    if (rules_.goes_back) {
        if (event.number > c.una) {
            c.una = event.number;
            c.nxt = std::max(c.nxt, c.una);
            progress(c, event.time - event.sent);
        }
        if (event.says == kRefusal && event.number >= c.una) c.nxt = event.number;
    } else {
        answer_selective(c, event);
    }
    while (static_cast<size_t>(c.told_part) < c.parts.size() && c.una > c.last_of(c.told_part)) {
        answered(c.parts[c.told_part].message, event.time);
        ++c.told_part;
    }
    go_on(c, event.time);
}

static void discard(std::vector<int32_t>& numbers, int32_t number) {
    const auto at = std::lower_bound(numbers.begin(), numbers.end(), number);
    if (at != numbers.end() && *at == number) numbers.erase(at);
}

void answer_selective(PacketConnection& c, const PacketEvent& event) {
    int64_t fresh = 0;
    const bool advanced = event.number > c.una;
    SentPacket latest;
    bool known = false;
    for (int32_t number = c.una; number < event.number; ++number) {
        const SentPacket& each = *c.record(number);
        if (each.state == kArrived) {
            --c.arrived;
        } else {
            ++fresh;
            latest = each;
            known = true;
            if (each.state == kMissing) discard(c.missing, number);
        }
    }
    if (event.number > c.una) {
        if (c.partner >= 0) {
            auto& mine = carried_[c.number];
            mine.erase(mine.begin(), mine.lower_bound(event.number));
        }
        c.una = event.number;
        c.forget_before(c.una);
    }
    SentPacket* one = event.more >= c.una ? c.record(event.more) : nullptr;
    if (one && one->state != kArrived) {
        if (one->state == kMissing) discard(c.missing, event.more);
        one->state = kArrived;
        ++c.arrived;
        c.high = std::max(c.high, event.more);
        ++fresh;
        latest = *one;
        known = true;
    }
    if (!fresh) return;
    c.newest = std::max(c.newest, std::pair(event.sent, event.more));
    const int64_t trip = event.time - event.sent;
    progress(c, trip);
    c.doubt_at = kForever;
    const bool clean = !(c.arrived && find_missing(c, event.time, c.newest.first)) && advanced;
    if (c.recovering && c.una >= c.recover) {
        c.recovered();
        c.recovering = c.restarting = false;
    }
    c.acked(fresh, event.time, trip, known ? &latest : nullptr, clean);
}

bool find_missing(PacketConnection& c, int64_t now, int64_t newest) {
    int64_t slack = static_cast<int64_t>(c.srtt), doubt = kForever;
    if (rules_.is_tcp) slack = std::min(c.trip_ps / 4, static_cast<int64_t>(c.srtt / 8));
    bool some = false;
    for (int32_t number = c.una; number < c.high; ++number) {
        SentPacket& each = *c.record(number);
        if (each.state != kOut) continue;
        const bool passed = rules_.is_tcp && !each.again && c.high - number >= kReordered;
        const bool older = std::pair(each.at, number) < c.newest;
        if (passed || (older && each.at + slack < newest)) {
            each.state = kMissing;
            c.missing.insert(std::upper_bound(c.missing.begin(), c.missing.end(), number), number);
            some = true;
        } else if (rules_.is_tcp && older) {
            doubt = std::min(doubt, now + each.at + slack + 1 - newest);
        }
    }
    c.doubt_at = doubt;
    c.doubt_from = newest - now;
    if (some && !c.recovering) {
        c.recovering = true;
        c.recover = c.nxt;
        c.lost();
    }
    return some;
}

static void progress(PacketConnection& c, int64_t trip) {
    const double took = static_cast<double>(trip);
    if (c.srtt == 0.0) {
        c.srtt = took;
        c.rttvar = took / 2.0;
    } else {
        c.rttvar = 0.75 * c.rttvar + 0.25 * std::abs(c.srtt - took);
        c.srtt = 0.875 * c.srtt + 0.125 * took;
    }
    c.backoff = c.retries = 0;
    c.probed = false;
    c.retry_at = kForever;
}

// Timers.

void set_timer(PacketConnection& c, int64_t now) {
    if (c.una == c.nxt) {
        c.retry_at = kForever;
    } else if (c.retry_at == kForever) {
        set_retry(c, now);
    }
    const int64_t target = std::min({c.retry_at, c.doubt_at, c.waits_to_send ? c.send_at : kForever});
    if (target < c.timer_at) {
        c.timer_at = target;
        wake(c);
    }
}

// See that something in the queue comes at the timer's time or before: the next such event, or the one far ahead. Timers are put
// off far more often than they run out, so an event that comes too early asks again, and the queue holds few for a connection.
void wake(PacketConnection& c) {
    if (std::min(c.wakes_next, c.wakes_later) <= c.timer_at) return;
    (c.wakes_later == kForever ? c.wakes_later : c.wakes_next) = c.timer_at;
    happen(kTimer, c.timer_at, c.number);
}

void woken(PacketConnection& c, int64_t now) {
    if (c.wakes_next == now) c.wakes_next = kForever;
    if (c.wakes_later == now) c.wakes_later = kForever;
    if (now == c.timer_at) {
        timer(c, now);
    } else if (c.timer_at != kForever) {
        wake(c);
    }
}

void set_retry(PacketConnection& c, int64_t now) {
    const int64_t begin = rules_.is_tcp ? now : std::max(now, c.local_until);
    c.probing = rules_.is_tcp && !(c.recovering || !c.missing.empty() || c.backoff || c.probed) && c.srtt > 0.0;
    if (c.probing) {
        const int64_t lone = c.pipe() == 1 ? kLonePs : kProbePs;
        c.retry_at = begin + std::min(static_cast<int64_t>(2.0 * c.srtt) + lone, rto(c));
    } else {
        c.retry_at = begin + rto(c);
    }
}

int64_t rto(const PacketConnection& c) const {
    int64_t base = rules_.rto_ps;
    if (rules_.is_tcp) {
        base = c.srtt != 0.0 ? static_cast<int64_t>(c.srtt) + std::max(base, static_cast<int64_t>(4.0 * c.rttvar)) : 5 * base;
    } else {
        const double full = static_cast<double>(c.trip_ps) + static_cast<double>(rules_.buffer) * c.line_ps;
        base = std::max({base, static_cast<int64_t>(4.0 * c.srtt), static_cast<int64_t>(4.0 * full)});
    }
    int64_t later = base;
    for (int32_t i = 0; i < std::min(c.backoff, 30) && later < rules_.most_rto_ps; ++i) later *= 2;
    return std::max(base, std::min(later, rules_.most_rto_ps));
}

void timer(PacketConnection& c, int64_t now) {
    c.timer_at = kForever;
    if (c.waits_to_send && c.send_at <= now) {
        c.waits_to_send = false;
        go_on(c, now);
    }
    if (c.doubt_at <= now) {
        if (find_missing(c, now, now + c.doubt_from)) c.doubted();
        go_on(c, now);
    }
    if (c.retry_at <= now && c.una < c.nxt) {
        ask_again(c, now);
    } else if (c.retry_at <= now) {
        c.retry_at = kForever;
    }
    set_timer(c, now);
}

void ask_again(PacketConnection& c, int64_t now) {
    if (c.probing) {
        probe(c, now);
        return;
    }
    ++timeouts;
    c.timed_out();
    ++c.retries;
    ++c.backoff;
    if (c.retries > rules_.retries) {
        gave_up = c.number;
        gave_up_at = now;
        return;
    }
    if (rules_.goes_back) {
        c.nxt = c.una;
    } else {
        for (int32_t number = c.una; number < c.nxt; ++number) {
            SentPacket& each = *c.record(number);
            if (each.state != kOut) continue;
            each.state = kMissing;
            c.missing.insert(std::upper_bound(c.missing.begin(), c.missing.end(), number), number);
        }
        c.recovering = c.restarting = true;
        c.recover = c.nxt;
    }
    c.retry_at = kForever;
    go_on(c, now);
}

void probe(PacketConnection& c, int64_t now) {
    c.probed = true;
    c.retry_at = kForever;
    const int32_t number = c.nxt - 1;
    const SentPacket* each = c.record(number);
    if (!each || each->state != kOut) return;
    submit(c, number, now);
    set_retry(c, now);
}

// Receiver.

void data(PacketConnection& c, const PacketEvent& event) {
    if (!c.reliable) {
        packet_arrived(c, c.part_of(event.number), event.time);
        return;
    }
    if (event.says && ports_.marks && event.time >= c.notice_at) {
        c.notice_at = event.time + kNoticePs;
        say(c, event, kNotice);
    }
    if (event.time - c.heard_at > rules_.rto_ps) c.at_once = kAtOnce;
    c.heard_at = event.time;
    c.heard_sent = event.sent;
    c.heard_number = event.number;
    if (rules_.goes_back) {
        in_order(c, event);
    } else {
        selective(c, event);
    }
}

void in_order(PacketConnection& c, const PacketEvent& event) {
    if (event.number > c.expected) {
        if (!c.refused) {
            c.refused = true;
            say(c, event, kRefusal);
        }
        return;
    }
    if (event.number < c.expected) {
        say(c, event, kPlain);
        return;
    }
    c.refused = false;
    advance(c, event.time, true);
    answer_some(c, event);
}

void selective(PacketConnection& c, const PacketEvent& event) {
    const int32_t number = event.number;
    const auto place = std::lower_bound(c.early.begin(), c.early.end(), number);
    if (number < c.expected || (place != c.early.end() && *place == number)) {
        carried(c, event);
        say(c, event, kPlain);
        return;
    }
    const bool gap = !c.early.empty() || number > c.expected;
    if (!rules_.ordered) packet_arrived(c, c.part_of(number), event.time);
    if (number > c.expected) {
        c.early.insert(place, number);
    } else {
        advance(c, event.time, rules_.ordered);
        size_t gone = 0;
        while (gone < c.early.size() && c.early[gone] == c.expected) {
            ++gone;
            advance(c, event.time, rules_.ordered);
        }
        c.early.erase(c.early.begin(), c.early.begin() + static_cast<std::ptrdiff_t>(gone));
    }
    carried(c, event);
    if (gap) {
        say(c, event, kPlain);
    } else {
        answer_some(c, event);
    }
}

void advance(PacketConnection& c, int64_t time, bool count) {
    if (c.expected > c.last_of(c.part)) ++c.part;
    if (count) packet_arrived(c, c.part, time);
    ++c.expected;
    ++c.unanswered;
}

void packet_arrived(PacketConnection& c, int32_t part, int64_t time) {
    const int32_t message = c.parts[part].message;
    if (--left_[message] == 0) delivered(message, time);
}

void answer_some(PacketConnection& c, const PacketEvent& event) {
    if (c.at_once) {
        --c.at_once;
        say(c, event, kPlain);
    } else if (c.unanswered >= rules_.every || (c.unanswered && c.expected > c.last_of(c.part))) {
        say(c, event, kPlain);
    }
}

void say(PacketConnection& c, const PacketEvent& event, uint8_t says) {
    if (says != kNotice) c.unanswered = 0;
    PacketNode* node = pool_.take(PacketEvent());
    PacketEvent& told = node->event;
    told.time = told.tail = event.time;
    told.kind = kAck;
    told.owner = c.number;
    told.number = c.expected;
    told.sent = event.sent;
    told.more = event.number;
    told.size = rules_.ack;
    told.says = says;
    told.path = c.back_at;
    told.length = c.back_length;
    arrive(node);
}
