// The records of the master's journal as bytes. The reader returns what was written, or detects that it cannot.
//
// A record is its encoding, followed by the XXH3-64 of that encoding (8 bytes, little-endian). A master that dies may
// leave its last record incomplete. That record was not acknowledged, so nothing rests on it, and the reader skips it.
// It may be at the end of the journal, or before an intact record with which a master started. Several may follow each
// other there, because a master may die before its first record is complete. The reader refuses damage anywhere else.
#pragma once

#include "core/wire/control.pb.h"

#include <span>
#include <string>

namespace pccl::core {

std::string seal_record(const proto::Record& record);

class JournalReader {
public:
    explicit JournalReader(std::span<const std::string> journal) : journal_(journal) {}

    enum class Step : std::uint8_t { record, end, damaged };
    Step next(proto::Record& record);
    std::size_t torn() const { return torn_; }  // incomplete records that were skipped

private:
    std::span<const std::string> journal_;
    std::size_t at_ = 0;
    std::size_t torn_ = 0;
    bool behind_torn_ = false;
};

}  // namespace pccl::core
