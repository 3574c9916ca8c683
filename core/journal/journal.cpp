#include "core/journal/journal.hpp"

#include "core/numeric/kernels.hpp"

#include <cstdint>

namespace pccl::core {

namespace {

constexpr std::size_t sum_bytes = 8;

std::uint64_t sum_of(const std::string& bytes, std::size_t length) { return numeric::checksum64(bytes.data(), length); }

}  // namespace

std::string seal_record(const proto::Record& record) {
    std::string bytes = record.SerializeAsString();
    const std::uint64_t sum = sum_of(bytes, bytes.size());
    for (std::size_t i = 0; i < sum_bytes; ++i) bytes.push_back(static_cast<char>(sum >> (8 * i)));
    return bytes;
}

JournalReader::Step JournalReader::next(proto::Record& record) {
    while (at_ < journal_.size()) {
        const std::string& bytes = journal_[at_++];
        bool intact = bytes.size() >= sum_bytes;
        if (intact) {
            const std::size_t length = bytes.size() - sum_bytes;
            std::uint64_t sum = 0;
            for (std::size_t i = sum_bytes; i-- != 0;) sum = sum << 8 | static_cast<std::uint8_t>(bytes[length + i]);
            intact = sum == sum_of(bytes, length) && record.ParseFromArray(bytes.data(), static_cast<int>(length));
        }
        if (!intact) {
            behind_torn_ = true;
            ++torn_;
            continue;
        }
        const bool start =
            record.kind_case() == proto::Record::kRun || record.kind_case() == proto::Record::kIncarnation;
        if (behind_torn_ && !start) return Step::damaged;
        behind_torn_ = false;
        return Step::record;
    }
    return Step::end;
}

}  // namespace pccl::core
