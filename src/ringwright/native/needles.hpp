// Does a line hold any of a few words? A shift table over pairs of bytes (after Wu and Manber) skips most of the line.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ringwright {

class NeedleSet {
public:
    explicit NeedleSet(std::vector<std::string> needles) : needles_(std::move(needles)) {
        needles_.emplace_back("NCCL");
        for (const std::string& needle : needles_) {
            if (needle.empty()) throw std::invalid_argument("a needle is empty: it would match every line");
            if (needle.find('\n') != std::string::npos)
                throw std::invalid_argument("a needle holds a newline: it could match no line");
            if (needle.size() == 1) add_single(needle[0]);
            else window_ = std::min(window_, needle.size());
        }
        shifts_.fill(static_cast<uint8_t>(window_ - 1));
        for (size_t i = 0; i < needles_.size(); ++i)
            if (needles_[i].size() > 1) add_word(i);
    }

    bool found_in(const char* text, size_t size) const {
        return (any_single_ && found_single(text, size)) || found_word(text, size);
    }

private:
    static constexpr size_t kPairs = 4096;

    static size_t pair_at(const char* text) {
        const auto first = static_cast<unsigned char>(text[0]), second = static_cast<unsigned char>(text[1]);
        return (first ^ (static_cast<size_t>(second) << 4)) & (kPairs - 1);
    }

    void add_single(char byte) {
        any_single_ = true;
        singles_[static_cast<unsigned char>(byte)] = true;
    }

    void add_word(size_t index) {
        const char* text = needles_[index].data();
        for (size_t at = 0; at + 2 <= window_; ++at) {
            uint8_t& shift = shifts_[pair_at(text + at)];
            shift = std::min(shift, static_cast<uint8_t>(window_ - 2 - at));
        }
        candidates_[pair_at(text + window_ - 2)].push_back(index);
    }

    bool found_single(const char* text, size_t size) const {
        return std::any_of(text, text + size, [this](char byte) { return singles_[static_cast<unsigned char>(byte)]; });
    }

    bool found_word(const char* text, size_t size) const {
        for (size_t start = 0; start + window_ <= size;) {
            const size_t pair = pair_at(text + start + window_ - 2);
            if (shifts_[pair] != 0) {
                start += shifts_[pair];
                continue;
            }
            if (starts_with_candidate(pair, text + start, size - start)) return true;
            ++start;
        }
        return false;
    }

    bool starts_with_candidate(size_t pair, const char* text, size_t size) const {
        for (const size_t index : candidates_[pair]) {
            const std::string& needle = needles_[index];
            if (needle.size() <= size && std::memcmp(text, needle.data(), needle.size()) == 0) return true;
        }
        return false;
    }

    std::vector<std::string> needles_;
    size_t window_ = 4;  // bytes compared at once: the shortest needle, "NCCL" among them
    bool any_single_ = false;
    std::array<bool, 256> singles_{};
    std::array<uint8_t, kPairs> shifts_{};
    std::array<std::vector<size_t>, kPairs> candidates_;
};

}  // namespace ringwright
