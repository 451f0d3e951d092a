// Part of PacketLoop: gated ports, whose packets may be told to wait.

void enqueue(const PacketWay& path, PacketNode* node) {
    PacketEvent& event = node->event;
    const int64_t now = event.time;
    const int32_t number = path[event.hop];
    PacketPort& port = ports_.at[number];
    ++port.count;
    ports_.note(number, now, port.queued);
    const bool marked = event.kind == kData && ports_.is_marked(number, now, port.queued);
    if (event.hop && ports_.at[path[event.hop - 1]].gate == kPause && !hold(path, event)) {
        pool_.give(node);
        return;
    }
    if (marked) event.says = 1;
    port.queued += event.size;
    ++port.waiting;
    const bool own = event.kind == kAck && !event.hop;
    (own ? port.answers : ports_.lane_at(port, event.hop).queue).push(node);
    send_on(number, now);
}

PacketEvent pause(int64_t now, int32_t before, int32_t lane, int32_t waits) const {
    PacketEvent event;
    event.time = now + ports_.latency(before, now);
    event.kind = kPausing;
    event.owner = before;
    event.hop = static_cast<uint8_t>(lane);
    event.more = waits;
    return event;
}

bool hold(const PacketWay& path, const PacketEvent& event) {
    const int32_t number = path[event.hop], before = path[event.hop - 1];
    PacketPort& link = ports_.at[before];
    PacketLane& lane = ports_.lane_at(link, event.hop - 1);
    if (lane.held + event.size > ports_.buffer(number, event.time)) {
        ++ports_.at[number].drops;
        return false;
    }
    lane.held += event.size;
    if (!lane.told && lane.held > ports_.share_of_buffer(number, event.time, kPauseAt)) {
        lane.told = true;
        ++link.pauses;
        queue_.push(pause(event.time, before, std::min(event.hop - 1, link.lanes - 1), 1));
    }
    return true;
}

void leave_queue(const PacketWay& path, int32_t hop, int64_t size, int64_t now) {
    if (!hop) return;
    const int32_t before = path[hop - 1];
    PacketPort& link = ports_.at[before];
    if (!link.gate) return;
    const bool queued_here = hop < path.length && ports_.at[path[hop]].gate;
    if (link.gate == kPause && !queued_here) return;
    PacketLane& lane = ports_.lane_at(link, hop - 1);
    lane.held -= size;
    if (link.gate == kCredit) {
        if (link.blocked) {
            link.blocked = false;
            happen(kPort, now, before);
        }
    } else if (lane.told && lane.held <= ports_.share_of_buffer(path[hop], now, kResumeAt)) {
        lane.told = false;
        queue_.push(pause(now, before, std::min(hop - 1, link.lanes - 1), 0));
    }
}

void pausing(const PacketEvent& event) {
    ports_.lane(ports_.at[event.owner], event.hop).paused = event.more != 0;
    if (!event.more) send_on(event.owner, event.time);
}

void send_on(int32_t number, int64_t now) {
    PacketPort& port = ports_.at[number];
    if (port.silent && port.waiting) speak(port, number, now);
    while (!port.busy) {
        PacketQueue* queue = &port.answers;
        if (!may_go(port, *queue, now)) {
            const int32_t at = next_lane(port, now);
            if (at < 0) return;
            port.last = static_cast<uint8_t>(at);
            queue = &ports_.lane(port, at).queue;
        }
        PacketNode* node = queue->pop();
        PacketEvent& event = node->event;
        const int64_t size = event.size;
        const int32_t hop = event.hop, owner = event.owner;
        const bool own = event.kind == kData && !hop;
        port.queued -= size;
        --port.waiting;
        const PacketWay path = way(event);
        leave_queue(path, hop, size, now);
        const bool arrives = on_wire(path, node, std::max(now, port.free));
        if (arrives && port.gate == kCredit) ports_.lane_at(port, hop).held += size;
        if (own) port.leaving = owner;
        if (!own && port.free <= now) continue;
        port.busy = true;
        port.silent = !own && !port.waiting;
        if (!port.silent) happen(kPort, std::max(now, port.free), number);
        __builtin_prefetch(ports_.lane(port, port.last).queue.first);
    }
}

// A packet has come to a silent port: the event is made now that would have told when it is free, or would have done so by now.
void speak(PacketPort& port, int32_t number, int64_t now) {
    port.silent = false;
    const bool before = kind_ != kPort ? kind_ < kPort : owner_ < number;
    port.busy = now < port.free || (now == port.free && before);
    if (port.busy) happen(kPort, port.free, number);
}

void is_free(int32_t number, int64_t now) {
    PacketPort& port = ports_.at[number];
    port.busy = port.busy && now < port.free;
    port.silent = port.silent && port.busy;
    if (!port.busy && port.leaving >= 0) {
        PacketConnection& owner = connections_[port.leaving];
        port.leaving = -1;
        left_host(owner, now);
    }
    send_on(number, now);
}

int32_t next_lane(PacketPort& port, int64_t now) {
    int32_t at = port.last;
    for (int32_t step = 0; step < port.lanes; ++step) {
        if (++at >= port.lanes) at = 0;
        if (may_go(port, ports_.lane(port, at).queue, now)) return at;
    }
    return -1;
}

bool may_go(PacketPort& port, const PacketQueue& queue, int64_t now) {
    if (queue.empty()) return false;
    const PacketEvent& event = queue.first->event;
    const PacketLane& lane = ports_.lane_at(port, event.hop);
    if (lane.paused) return false;
    if (port.gate != kCredit) return true;
    const PacketWay path = way(event);
    if (event.hop + 1 >= path.length) return true;
    if (lane.held && lane.held + event.size > ports_.buffer(path[event.hop + 1], now)) {
        port.blocked = true;
        return false;
    }
    return true;
}
