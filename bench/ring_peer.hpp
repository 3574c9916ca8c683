// One peer of the bare ring: moves the bytes of one all-reduce between two connections, without waiting.
//
// A peer sends its own part first, then what it has received, in order of arrival. In the first half of the steps it
// adds its own input to what it receives. So the next byte may leave if `sent_` is less than the size of the own part
// plus `processed_` (received bytes that are ready to be forwarded). These two counters drive the loop.
#pragma once

#include <cstddef>
#include <poll.h>
#include <string>

namespace pccl::bench {

// Received bytes are added in pieces of this size, so that they are still in the cache.
inline constexpr std::size_t ring_segment_bytes = 256 * 1024;

class RingPeer {
public:
    // `previous` and `next` are non-blocking sockets. `scratch` has ring_segment_bytes. `source` may be `buffer`.
    RingPeer(unsigned rank, unsigned peers, std::size_t elements, int previous, int next, float* buffer,
             const float* source, float* scratch);

    enum class Progress { done, moved, waits, failed };
    // Moves what the connections take and give now. After `done` the next call begins the next all-reduce.
    Progress advance();
    // What to wait for after `waits`: two entries.
    void wanted(pollfd* fds) const;
    // One whole all-reduce. False if a connection fails, or if nothing moves for 10 s.
    bool run();

private:
    struct Part {  // a range of the vector, in bytes
        std::size_t begin;
        std::size_t end;
        std::size_t size() const { return end - begin; }
    };
    Part part(unsigned index) const;
    unsigned steps() const { return 2 * (peers_ - 1); }
    Progress receive();
    Progress transmit();
    void add(std::size_t offset, std::size_t bytes);

    unsigned rank_, peers_;
    std::size_t elements_;
    int previous_, next_;
    char* target_;
    const char* source_;
    char* scratch_;

    unsigned send_step_ = 0, receive_step_ = 0;
    std::size_t sent_in_step_ = 0, sent_ = 0;
    std::size_t received_in_step_ = 0, processed_ = 0;
    std::size_t gathered_ = 0;  // received bytes of the current segment, in scratch_, not added yet
};

// A new socket with that congestion control, if the system allows it; empty: the system's. It is set before the socket
// connects or listens: one that began with a control that paces is paced for ever. -1: failed.
int ring_socket(const std::string& congestion_control);
// A connected one: no delay of small writes, no blocking.
void prepare_ring_socket(int socket);

}  // namespace pccl::bench
