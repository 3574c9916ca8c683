// Computes of a loop: at once on its thread, with a round (rounds.cpp), or by workers.
#include "net-real/event_loop_impl.hpp"

#include "core/numeric/kernels.hpp"

#include <algorithm>
#include <utility>

namespace pccl::real {

namespace {

// Limits for computes that run at once on the loop's thread: a slice that has just landed is only in this core's cache.
constexpr std::uint64_t inline_compute_bytes = 1u << 20;
constexpr std::uint64_t inline_hash_bytes = 64u << 10;
constexpr std::uint64_t inline_turn_bytes = 8u << 20;

}  // namespace

core::ComputeDone run_compute(const core::Compute& compute, const core::ComputeMemory& memory) {
    core::ComputeDone done{compute.id, 0, {}};
    if (compute.kind == core::Compute::Kind::hash) {
        if (compute.want_checksum)
            done.checksum = core::numeric::checksum64(memory.a, compute.a.length);
        else
            done.hash = core::numeric::hash128(memory.a, compute.a.length);
        return done;
    }
    core::carry_out(compute, memory);
    if (compute.want_checksum) done.checksum = core::numeric::checksum64(memory.target, compute.target.length);
    return done;
}

void EventLoop::Impl::compute(const core::Compute& effect) {
    const bool is_hash = effect.kind == core::Compute::Kind::hash;
    const core::ComputeMemory memory = memory_of(effect);
    const std::uint64_t bytes = std::max({effect.a.length, effect.b.length, effect.target.length});
    const bool in_file =
        buffers.is_file(effect.a.id) || buffers.is_file(effect.b.id) || buffers.is_file(effect.target.id);
    const bool is_small =
        !in_file && bytes <= (is_hash && !effect.want_checksum ? inline_hash_bytes : inline_compute_bytes);
    if (is_small && compute_later(effect, memory)) return;
    if (is_small && inline_bytes_ <= inline_turn_bytes) {
        inline_bytes_ += bytes;
        compute_at_once(effect, memory);
        return;
    }
    const auto writes = in_file ? std::make_shared<FileWrites>() : nullptr;
    if (in_file) {
        for (const core::BufferRef& range : {effect.a, effect.b, effect.target})
            file_payloads_.take_writes(range, *writes);
    }
    const auto work = [effect, memory, writes] {
        if (writes != nullptr) write_to_files(*writes);
        return run_compute(effect, memory);
    };
    // If no thread can be started, compute here: slow for everybody, but correct.
    Workers& workers = in_file ? file_workers_ : workers_;
    if (submit(workers, [work] { return Computed{work(), false, nullptr}; })) return;
    if (writes != nullptr) write_to_files(*writes);
    compute_at_once(effect, memory);
}

// If there is no memory for the report, nothing has been computed.
void EventLoop::Impl::compute_at_once(const core::Compute& effect, const core::ComputeMemory& memory) {
    core::Event& done = pending_.emplace_back(core::ComputeDone{});
    done = run_compute(effect, memory);
}

// After a failure: computes that have been requested are done, so that the client knows what they have written
// (core::PeerMachine::copy_rest). Those that write files are left out.
void EventLoop::Impl::finish_computes() noexcept {
    for (; carried_out_ < effects_.size(); ++carried_out_) {
        const auto* effect = std::get_if<core::Compute>(&effects_[carried_out_]);
        if (effect == nullptr || effect->kind == core::Compute::Kind::hash || buffers.is_file(effect->target.id))
            continue;
        run_compute(*effect, memory_of(*effect));
    }
    for (const RoundCompute& compute : round_computing_) {
        if (!round_has_run_) run_compute(compute.effect, compute.memory);
    }
    for (const RoundCompute& compute : round_computes_) run_compute(compute.effect, compute.memory);
}

core::ComputeMemory EventLoop::Impl::memory_of(const core::Compute& effect) {
    return {effect.kind == core::Compute::Kind::hash ? nullptr : buffers.resolve(effect.target),
            buffers.resolve(effect.a), core::reads_b(effect.kind) ? buffers.resolve(effect.b) : nullptr,
            core::writes_keep(effect) ? buffers.resolve(effect.keep) : nullptr};
}

// False: no thread could be started.
bool EventLoop::Impl::submit(Workers& workers, std::function<Computed()> work) {
    {
        const std::lock_guard lock(posted_mutex_);
        computed_.reserve(computed_.size() + computing_ + 1);
        ++computing_;
    }
    const auto take_back = [this] {
        const std::lock_guard lock(posted_mutex_);
        --computing_;
    };
    try {
        const bool submitted = workers.submit([this, work = std::move(work)]() noexcept {
            Computed done;
            try {
                done = work();
            } catch (...) {
                done.failed = true;
            }
            computed(std::move(done));
        });
        if (!submitted) take_back();
        return submitted;
    } catch (...) {
        take_back();
        throw;
    }
}

// Called by a worker.
void EventLoop::Impl::computed(Computed done) noexcept {
    {
        const std::lock_guard lock(posted_mutex_);
        --computing_;
        computes_done_.fetch_add(1, std::memory_order_relaxed);
        if (ended_) return;
        const bool was_empty = posted_.empty() && computed_.empty();
        computed_.push_back(std::move(done));
        if (!was_empty) return;
    }
    wake();
}

}  // namespace pccl::real
