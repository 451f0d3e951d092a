// Which classes of flows use which resource at the moment: lists that a class joins and leaves in constant time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine_events.hpp"

namespace ringwright {

// A range of resources.
struct Way {
    const int32_t *first, *last;
    const int32_t* begin() const { return first; }
    const int32_t* end() const { return last; }
};

struct Classes {
    Span<int32_t> owner;  // class of each message
    Span<int64_t> starts;
    Span<int32_t> ways;
};

class ClassLists {
public:
    ClassLists(const Classes& classes, size_t resources)
        : spec_(classes), users_(resources), slot_(classes.ways.size, -1), owner_(classes.ways.size, 0) {
        for (size_t number = 0; number + 1 < classes.starts.size; ++number) {
            for (int64_t at = classes.starts[number]; at < classes.starts[number + 1]; ++at) {
                owner_[at] = static_cast<int32_t>(number);
            }
        }
    }

    Way way(int32_t number) const {
        return {spec_.ways.data + spec_.starts[number], spec_.ways.data + spec_.starts[number + 1]};
    }

    void enter(int32_t number) {
        for (int64_t at = spec_.starts[number]; at < spec_.starts[number + 1]; ++at) {
            auto& list = users_[spec_.ways[at]];
            slot_[at] = static_cast<int32_t>(list.size());
            list.push_back(at);
        }
    }

    void leave(int32_t number) {
        for (int64_t at = spec_.starts[number]; at < spec_.starts[number + 1]; ++at) {
            auto& list = users_[spec_.ways[at]];
            const int64_t moved = list.back();
            list[slot_[at]] = moved;
            slot_[moved] = slot_[at];
            list.pop_back();
        }
    }

    // The classes on a resource, as a range.
    struct Users {
        const std::vector<int64_t>& entries;
        const std::vector<int32_t>& owner;

        struct Iterator {
            const int64_t* at;
            const int32_t* owner;
            int32_t operator*() const { return owner[*at]; }
            Iterator& operator++() {
                ++at;
                return *this;
            }
            bool operator!=(const Iterator& other) const { return at != other.at; }
        };
        Iterator begin() const { return {entries.data(), owner.data()}; }
        Iterator end() const { return {entries.data() + entries.size(), owner.data()}; }
    };

    Users users(int32_t resource) const { return {users_[resource], owner_}; }

private:
    const Classes& spec_;
    std::vector<std::vector<int64_t>> users_;  // per resource: places in `ways` of the classes that flow over it
    std::vector<int32_t> slot_, owner_;        // per place in `ways`: where it is on its list, whose it is
};

}  // namespace ringwright
