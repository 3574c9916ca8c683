// The object behind a pcclComm_t: a PeerRuntime, made at the first connect, and the buffers of launched operations.
//
// The machine in the runtime decides about states and votes. This class adds only what the machine cannot know: which
// memory belongs to which tag, and what to answer before there is a runtime. All members may be called from any thread.
#pragma once

#include "core/events.hpp"
#include "include/pccl.h"
#include "net-real/c_api/outcome.hpp"
#include "net-real/c_api/registry.hpp"
#include "net-real/callback_thread.hpp"
#include "net-real/peer_runtime.hpp"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace pccl::c_api {

void fill(pcclReduceInfo_t* info, const core::Completion& completion);
// Writes as many members as there is room for.
void fill(pcclCollectiveInfo_t* info, const core::Completion& completion);

class Communicator : public Leasable, public std::enable_shared_from_this<Communicator> {
public:
    explicit Communicator(real::PeerSettings settings);
    ~Communicator();

    Outcome connect();
    Outcome attribute(std::uint32_t attribute, int& value) const;
    Outcome update_topology();
    Outcome are_peers_pending(bool& pending);
    Outcome optimize_topology();
    // The caller has validated `descriptor` and the buffers.
    Outcome launch(const void* send, void* receive, const pcclReduceDescriptor_t& descriptor);
    Outcome await(std::uint64_t tag, pcclReduceInfo_t* info);
    // A collective as its function has validated it. Ids and input of the command are not set.
    struct Request {
        const void* send = nullptr;
        void* receive = nullptr;
        std::uint64_t send_bytes = 0;
        std::uint64_t receive_bytes = 0;
        core::CommandLaunch command{};
    };
    Outcome launch(const Request& request);
    // Of the collectives that are launched from now on (core::Collective::order).
    void set_piece_order(std::vector<std::uint32_t> order);
    std::vector<std::uint32_t> piece_order() const;
    Outcome launch_and_await(const Request& request, pcclCollectiveInfo_t* info);
    Outcome await(std::uint64_t tag, pcclCollectiveInfo_t* info);
    // Nil before the first connect.
    core::Uuid identity() const;
    // A name for the launch of a send, in place of a tag: several sends may have one tag. The names lie apart from the
    // tags that programs choose; a tag that is the name of an open send is refused.
    core::Tag next_send();
    // Returns at once. The callback thread calls `then` once with the outcome. The communicator stays alive until then.
    // The completion belongs to the outcome; it has no members and bytes after a failure.
    using Then = std::function<void(const Outcome&, const core::Completion&)>;
    Outcome await_then(std::uint64_t tag, Then then);
    Outcome launch_and_await(const void* send, void* receive, const pcclReduceDescriptor_t& descriptor,
                             pcclReduceInfo_t* info);
    // The caller has validated the descriptors and their buffers.
    Outcome reduce_many(const pcclReduceOpDescriptor_t* descriptors, std::size_t count, std::uint32_t window,
                        pcclReduceInfo_t* info);
    Outcome synchronize(pcclSharedState_t& state, std::uint32_t strategy, pcclSharedStateSyncInfo_t* info);

    Outcome abort();
    std::string statistics() const;  // JSON
    // Stores the last failure, or a notice for the application (for example whom a vote waits for).
    void remember(std::string message) noexcept;
    std::string last_message() const;

    // Leaves the run and makes every waiting call return. Bounded in time.
    void stop();
    // Call it after stop() and after the last lease has ended. Returns when all callbacks have run; in a callback, at
    // once.
    void finish_callbacks();
    // In a child of fork(): gives up the runtime without touching it. Its descriptors were closed at the fork.
    void abandon_in_child();

private:
    // Memory that is registered with the runtime; the destructor releases it.
    class Buffers {
    public:
        Buffers() = default;
        explicit Buffers(real::PeerRuntime& runtime) : runtime_(&runtime) {}
        Buffers(Buffers&& other) noexcept;
        Buffers& operator=(Buffers&& other) noexcept;
        ~Buffers();
        core::BufferId add(void* data, std::uint64_t bytes);

    private:
        void release();
        real::PeerRuntime* runtime_ = nullptr;
        std::vector<core::BufferId> ids_;
    };

    real::PeerRuntime* runtime() const { return published_.load(std::memory_order_acquire); }
    Outcome start_runtime();
    Outcome not_connected() const;
    Outcome from(const core::Completion& completion) const;
    using LaunchedMap = std::map<core::Tag, Buffers>;  // a map, because its nodes can be allocated in advance
    Outcome take_launched(std::uint64_t tag, LaunchedMap::node_type& launched);
    // For a call that failed before its command reached the machine: the operation still owns the buffers.
    void give_back(LaunchedMap::node_type launched) noexcept;
    core::CommandLaunch describe(const void* send, void* receive, const pcclReduceDescriptor_t& descriptor,
                                 Buffers& buffers) const;
    static core::CommandLaunch describe(const Request& request, Buffers& buffers);
    Outcome launch(const core::CommandLaunch& command, Buffers buffers);
    Outcome await_launched(std::uint64_t tag, core::Completion& completion);

    const real::PeerSettings settings_;
    std::mutex start_mutex_;
    std::unique_ptr<real::PeerRuntime> owned_;            // under start_mutex_
    std::atomic<real::PeerRuntime*> published_{nullptr};  // set once, after the start
    std::atomic<std::uint64_t> aborts_{0};                // a connect() that began before the last one fails
    bool stopped_ = false;                                // under start_mutex_
    std::atomic<bool> was_connected_{false};
    std::mutex launched_mutex_;
    LaunchedMap launched_;  // launched, and no await has begun
    std::atomic<std::uint64_t> sends_{0};
    mutable std::mutex order_mutex_;
    std::vector<std::uint32_t> piece_order_;  // under order_mutex_
    real::CallbackThread callbacks_;
    mutable std::mutex message_mutex_;
    std::string message_;  // under message_mutex_
    struct {
        std::atomic<std::uint64_t> done{0}, failed{0}, sent_bytes{0}, received_bytes{0};
    } syncs_;
};

}  // namespace pccl::c_api
