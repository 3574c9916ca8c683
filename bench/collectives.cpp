#include "collectives.hpp"

#include "statistics.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace pccl::bench {

namespace {

using Values = std::vector<float>;

// A member's part of one collective. The root is the member with index 0. Member r sends r + 1 everywhere.
class Mover {
public:
    Mover(pcclComm_t* communicator, unsigned rank, unsigned world, std::size_t elements)
        : communicator_(communicator), world_(world), elements_(elements / world * world), piece_(elements_ / world),
          own_(static_cast<float>(rank + 1)), sum_(static_cast<float>(world * (world + 1) / 2)), members_(world) {}

    struct Kind {
        const char* name;
        void (Mover::*prepare)();
        pcclResult_t (Mover::*call)();
        bool (Mover::*is_right)() const;
    };
    static const Kind* find(const std::string& name);

    pcclResult_t barrier() {
        info_.members = members_.data();
        info_.members_capacity = members_.size();
        const pcclResult_t result = pcclBarrier(1, communicator_, &info_);
        return result == pcclSuccess && info_.local_world_size != world_ ? pcclInternalError : result;
    }

    void whole_both() {
        send_.assign(elements_, own_);
        receive_.assign(elements_, 0);
    }
    void whole_in_place() { receive_.assign(elements_, own_); }
    void piece_to_whole() {
        send_.assign(piece_, own_);
        receive_.assign(elements_, 0);
    }
    void piece_to_root() {
        send_.assign(piece_, own_);
        receive_.assign(is_root() ? elements_ : 0, 0);
    }
    void whole_to_piece() {
        send_.assign(elements_, own_);
        receive_.assign(piece_, 0);
    }
    void root_to_piece() {
        send_.assign(is_root() ? elements_ : 0, own_);
        receive_.assign(piece_, 0);
    }

    pcclResult_t all_reduce() {
        const pcclReduceDescriptor_t descriptor = reduction();
        return pcclAllReduce(receive_.data(), receive_.data(), &descriptor, communicator_, nullptr);
    }
    pcclResult_t all_gather() {
        const pcclCopyDescriptor_t descriptor = copy(piece_);
        return pcclAllGather(send_.data(), receive_.data(), receive_.size(), &descriptor, communicator_, nullptr);
    }
    pcclResult_t broadcast() {
        const pcclCopyDescriptor_t descriptor = copy(elements_);
        return pcclBroadcast(is_root() ? receive_.data() : nullptr, receive_.data(), &root(), &descriptor,
                             communicator_, nullptr);
    }
    pcclResult_t reduce_scatter() {
        const pcclReduceDescriptor_t descriptor = reduction();
        return pcclReduceScatter(send_.data(), receive_.data(), piece_, &descriptor, communicator_, nullptr);
    }
    pcclResult_t reduce() {
        const pcclReduceDescriptor_t descriptor = reduction();
        return pcclReduce(receive_.data(), is_root() ? receive_.data() : nullptr, &root(), &descriptor, communicator_,
                          nullptr);
    }
    pcclResult_t gather() {
        const pcclCopyDescriptor_t descriptor = copy(piece_);
        return pcclGather(send_.data(), receive_.data(), receive_.size(), &root(), &descriptor, communicator_, nullptr);
    }
    pcclResult_t scatter() {
        const pcclCopyDescriptor_t descriptor = copy(piece_);
        const pcclPieces_t pieces{nullptr, world_};
        return pcclScatter(send_.data(), &pieces, receive_.data(), receive_.size(), &root(), &descriptor, communicator_,
                           nullptr);
    }
    pcclResult_t all_to_all() {
        const pcclCopyDescriptor_t descriptor = copy(piece_);
        const pcclPieces_t pieces{nullptr, world_};
        return pcclAllToAll(send_.data(), &pieces, receive_.data(), receive_.size(), &descriptor, communicator_,
                            nullptr);
    }

    bool is_sum() const { return all_are(receive_, sum_); }
    bool is_sum_at_root() const { return !is_root() || is_sum(); }
    // The same number everywhere, which one of the members has sent.
    bool is_of_one() const {
        return !receive_.empty() && receive_[0] >= 1 && receive_[0] <= static_cast<float>(world_) &&
               all_are(receive_, receive_[0]);
    }
    // A piece of each member.
    bool is_of_all() const {
        float sum = 0;
        for (unsigned k = 0; k < world_; ++k) {
            const float* piece = receive_.data() + k * piece_;
            if (!std::all_of(piece, piece + piece_, [&](float x) { return x == *piece; })) return false;
            sum += *piece;
        }
        return sum == sum_;
    }
    bool is_of_all_at_root() const { return !is_root() || is_of_all(); }
    // Sums must not grow from one iteration to the next.
    void clear() { std::fill(receive_.begin(), receive_.end(), 0.0f); }

private:
    static bool all_are(const Values& values, float value) {
        return std::all_of(values.begin(), values.end(), [&](float x) { return x == value; });
    }
    bool is_root() const { return info_.local_index == 0; }
    const pcclPeerId_t& root() const { return members_[0].peer; }
    static pcclCopyDescriptor_t copy(std::size_t elements) { return {elements, pcclFloat, 0}; }
    pcclReduceDescriptor_t reduction() const {
        return {elements_, pcclSum, 0, {pcclFloat, pcclDistributionNone}, {pcclFloat, pcclQuantNone}};
    }

    pcclComm_t* communicator_;
    unsigned world_;
    std::size_t elements_, piece_;
    float own_, sum_;
    std::vector<pcclMemberInfo_t> members_;
    pcclCollectiveInfo_t info_{};
    Values send_, receive_;
};

constexpr Mover::Kind kinds[] = {
    {"all_reduce", &Mover::whole_in_place, &Mover::all_reduce, &Mover::is_sum},
    {"all_gather", &Mover::piece_to_whole, &Mover::all_gather, &Mover::is_of_all},
    {"broadcast", &Mover::whole_in_place, &Mover::broadcast, &Mover::is_of_one},
    {"reduce_scatter", &Mover::whole_to_piece, &Mover::reduce_scatter, &Mover::is_sum},
    {"reduce", &Mover::whole_in_place, &Mover::reduce, &Mover::is_sum_at_root},
    {"gather", &Mover::piece_to_root, &Mover::gather, &Mover::is_of_all_at_root},
    {"scatter", &Mover::root_to_piece, &Mover::scatter, &Mover::is_of_one},
    {"all_to_all", &Mover::whole_both, &Mover::all_to_all, &Mover::is_of_all},
};

const Mover::Kind* Mover::find(const std::string& name) {
    for (const Kind& kind : kinds)
        if (name == kind.name) return &kind;
    return nullptr;
}

}  // namespace

std::string move_arrays(pcclComm_t* communicator, unsigned rank, unsigned world, std::istream& arguments) {
    std::string name;
    std::size_t bytes = 0;
    unsigned iterations = 0;
    arguments >> name >> bytes >> iterations;
    const Mover::Kind* kind = Mover::find(name);
    if (kind == nullptr) return "moved " + std::to_string(static_cast<int>(pcclInvalidArgument));
    Mover mover(communicator, rank, world, bytes / sizeof(float));
    pcclResult_t result = mover.barrier();
    if (result == pcclSuccess) (mover.*kind->prepare)();
    std::string times;
    for (unsigned i = 0; i < iterations && result == pcclSuccess; ++i) {
        result = mover.barrier();
        if (result != pcclSuccess) break;
        const std::int64_t begin = monotonic_ns();
        result = (mover.*kind->call)();
        times += " " + std::to_string(begin) + " " + std::to_string(monotonic_ns());
        if (i == 0 && result == pcclSuccess) {
            if (!(mover.*kind->is_right)()) result = pcclInternalError;
            mover.clear();
        }
    }
    return "moved " + std::to_string(static_cast<int>(result)) + times;
}

}  // namespace pccl::bench
