// Memory in large pages: what is read in no order at all finds its address sooner. Elsewhere than on Linux it is memory as usual.
#pragma once

#include <cstddef>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace ringwright {

template <class Value>
struct LargePages {
    using value_type = Value;

    LargePages() = default;
    template <class Other>
    LargePages(const LargePages<Other>&) {}

    Value* allocate(size_t count) {
        const size_t bytes = count * sizeof(Value);
        void* memory = ::operator new(bytes, std::align_val_t(alignment(bytes)));
#ifdef __linux__
        if (bytes >= kLarge) madvise(memory, bytes / kPage * kPage, MADV_HUGEPAGE);
#endif
        return static_cast<Value*>(memory);
    }

    void deallocate(Value* memory, size_t count) {
        ::operator delete(memory, std::align_val_t(alignment(count * sizeof(Value))));
    }

    bool operator==(const LargePages&) const { return true; }
    bool operator!=(const LargePages&) const { return false; }

private:
    static constexpr size_t kPage = size_t{2} << 20, kLarge = 2 * kPage;

    static size_t alignment(size_t bytes) { return bytes >= kLarge ? kPage : alignof(Value) < 64 ? 64 : alignof(Value); }
};

}  // namespace ringwright
