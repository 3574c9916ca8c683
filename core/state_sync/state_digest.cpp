#include "core/state_sync/state_digest.hpp"

#include "core/wire/bounds.hpp"

namespace pccl::core {

namespace {

constexpr std::size_t named_bytes = 128;  // most bytes of a key in a text

std::string named(std::string key) {
    wire::bound_text(key, named_bytes);
    return "key '" + key + "'";
}

}  // namespace

void StateDigest::add_number(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) block_.push_back(static_cast<char>(value >> (8 * i)));
}

void StateDigest::add(std::string_view name, std::uint64_t count, DataType type, bool may_differ) {
    if (block_.size() >= block_bytes_) fold();
    add_number(name.size());
    block_ += name;
    add_number(count);
    block_.push_back(static_cast<char>(type));
    block_.push_back(may_differ ? 1 : 0);
}

void StateDigest::add_content(const Hash128& hash) {
    add_number(hash.low);
    add_number(hash.high);
}

void StateDigest::fold() {
    before_ = value();
    block_.clear();
}

Hash128 StateDigest::value() const {
    std::string all = block_;
    for (const std::uint64_t word : {before_.low, before_.high}) {
        for (int i = 0; i < 8; ++i) all.push_back(static_cast<char>(word >> (8 * i)));
    }
    return numeric::hash128(all.data(), all.size());
}

std::string difference_text(const EntryKey& mine, const EntryKey& winner) {
    if (mine.name == winner.name) return named(mine.name) + " differs in type, count or flag";
    if (winner.name < mine.name) return named(winner.name) + " is missing";
    return named(mine.name) + " is unknown to the others";
}

}  // namespace pccl::core
