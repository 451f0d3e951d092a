// Part of PacketLoop: gated ports, whose packets may be told to wait.

int32_t lane_of(int32_t port, int32_t hop) const { return std::min(hop, ports_.at[port].lanes - 1); }

void enqueue(const PacketWay& path, const PacketEvent& event) {
    const int32_t number = path[event.hop];
    PacketPort& port = ports_.at[number];
    ++port.count;
    ports_.note(number, event.time, port.queued);
    PacketEvent waiting = event;
    if (event.kind == kData && ports_.is_marked(number, event.time, port.queued)) waiting.says = 1;
    if (event.hop && ports_.at[path[event.hop - 1]].gate == kPause && !hold(path, event)) return;
    port.queued += event.size;
    const bool own = event.kind == kAck && !event.hop;
    (own ? ports_.answers[number] : ports_.lanes[number][lane_of(number, event.hop)].queue).push(pool_.take(waiting));
    send_on(number, event.time);
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
    const int32_t at = lane_of(before, event.hop - 1);
    PacketLane& lane = ports_.lanes[before][at];
    if (lane.held + event.size > ports_.buffer(number, event.time)) {
        ++ports_.at[number].drops;
        return false;
    }
    lane.held += event.size;
    if (!lane.told && lane.held > ports_.share_of_buffer(number, event.time, kPauseAt)) {
        lane.told = true;
        ++ports_.at[before].pauses;
        queue_.push(pause(event.time, before, at, 1));
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
    const int32_t at = lane_of(before, hop - 1);
    PacketLane& lane = ports_.lanes[before][at];
    lane.held -= size;
    if (link.gate == kCredit) {
        if (link.blocked) {
            link.blocked = false;
            queue_.push(port_event(now, before));
        }
    } else if (lane.told && lane.held <= ports_.share_of_buffer(path[hop], now, kResumeAt)) {
        lane.told = false;
        queue_.push(pause(now, before, at, 0));
    }
}

static PacketEvent port_event(int64_t time, int32_t port) {
    PacketEvent event;
    event.time = time;
    event.kind = kPort;
    event.owner = port;
    return event;
}

void pausing(const PacketEvent& event) {
    ports_.lanes[event.owner][event.hop].paused = event.more != 0;
    if (!event.more) send_on(event.owner, event.time);
}

void send_on(int32_t number, int64_t now) {
    PacketPort& port = ports_.at[number];
    while (!port.busy) {
        PacketQueue* queue = &ports_.answers[number];
        if (!may_go(number, *queue, now)) {
            const int32_t at = next_lane(number, now);
            if (at < 0) return;
            port.last = at;
            queue = &ports_.lanes[number][at].queue;
        }
        PacketNode* node = queue->pop();
        PacketEvent event = node->event;
        __builtin_prefetch(queue->first);
        pool_.give(node);
        port.queued -= event.size;
        const PacketWay path = way(event);
        leave_queue(path, event.hop, event.size, now);
        const int64_t begin = std::max(now, port.free);
        event.time = begin;
        const int32_t path_hop = event.hop;
        const bool arrives = on_wire(path, event, begin);
        if (arrives && port.gate == kCredit) ports_.lanes[number][lane_of(number, path_hop)].held += event.size;
        const bool own = event.kind == kData && !path_hop;
        if (own) port.leaving = event.owner;
        if (own || port.free > now) {
            port.busy = true;
            queue_.push(port_event(std::max(now, port.free), number));
        }
    }
}

void is_free(int32_t number, int64_t now) {
    PacketPort& port = ports_.at[number];
    port.busy = port.busy && now < port.free;
    if (!port.busy && port.leaving >= 0) {
        PacketConnection& owner = connections_[port.leaving];
        port.leaving = -1;
        left_host(owner, now);
    }
    send_on(number, now);
}

int32_t next_lane(int32_t number, int64_t now) {
    PacketPort& port = ports_.at[number];
    for (int32_t step = 0; step < port.lanes; ++step) {
        const int32_t at = (port.last + 1 + step) % port.lanes;
        if (may_go(number, ports_.lanes[number][at].queue, now)) return at;
    }
    return -1;
}

bool may_go(int32_t number, const PacketQueue& queue, int64_t now) {
    if (queue.empty()) return false;
    PacketPort& port = ports_.at[number];
    const PacketEvent& event = queue.first->event;
    const PacketLane& lane = ports_.lanes[number][lane_of(number, event.hop)];
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
