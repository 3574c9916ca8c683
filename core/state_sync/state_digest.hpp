// The digests that a synchronization compares. The schema digest covers the names, types, counts and flags of all
// entries. The content digest covers, in addition, the content hashes of the entries that are compared.
//
// Entries are added in canonical order. The memory is fixed, however many entries there are.
#pragma once

#include "core/events.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace pccl::core {

class StateDigest {
public:
    // `block_bytes`: how much is digested at a time (Limits::digest_block_bytes). Digests of different block sizes must
    // not be compared: they differ for equal entries that fill more than one block.
    explicit StateDigest(std::size_t block_bytes) : block_bytes_(block_bytes) {}
    void add(std::string_view name, std::uint64_t count, DataType type, bool may_differ);
    void add_content(const Hash128& hash);
    Hash128 value() const;

private:
    void add_number(std::uint64_t value);
    void fold();

    std::size_t block_bytes_;
    std::string block_;
    Hash128 before_;  // digest of all blocks that were folded
};

// A key of a shared state, as the master compares it.
struct EntryKey {
    std::string name;
    std::uint64_t count = 0;
    DataType type = DataType::u8;
    bool allow_content_inequality = false;
    friend bool operator==(const EntryKey&, const EntryKey&) = default;
};

// Describes how `mine` differs from `winner`. Both are at the same place of two sorted lists that are equal before it.
std::string difference_text(const EntryKey& mine, const EntryKey& winner);

}  // namespace pccl::core
