// Records of the master's journal as bytes: what is read back is what was written, or is known not to be.
//
// A record is its encoding followed by the XXH3-64 of it (8 bytes, little-endian). The last record a dying master wrote may
// be there in part; it was not acknowledged, so nothing rests on it and it is skipped: at the end of the journal, or where
// the next intact record shows that a master started there (one that died before its first record was written may have
// left such a part as well). Damage anywhere else is refused.
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
    std::size_t torn() const { return torn_; }  // records skipped

private:
    std::span<const std::string> journal_;
    std::size_t at_ = 0;
    std::size_t torn_ = 0;
    bool behind_torn_ = false;
};

}  // namespace pccl::core
