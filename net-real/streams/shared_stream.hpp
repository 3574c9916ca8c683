// A stream through memory that two processes of one host share, and a Unix socket between them.
//
// The socket opens the stream: the dialler passes the memory on it, and each end proves to the other one that it has
// mapped the same memory, with the token that it finds there. Afterwards the socket carries wake-ups only, one byte each
// (see shared_ring.hpp), and it shows the death of the other process: the system closes it. What was written before is
// still read. No lock and no name exist that a dead process could leave behind.
//
// The other end is as untrusted as a stranger on a TCP port until the machine has checked its pass, and its memory is
// never trusted. Only processes of the same user are heard at all.
#pragma once

#include "core/base/ids.hpp"
#include "net-real/streams/shared_segment.hpp"
#include "net-real/streams/stream.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pccl::real {

class SharedStream final : public Stream {
public:
    using Side = SharedSegment::Side;

    struct Failure {
        std::string reason;
        bool is_forbidden = false;  // somebody is there, but the rights of this process do not suffice
    };
    // Begins to dial the process of this host that listens on TCP at `target`, see shared_listen(). `source`: the
    // address by which it shall know the caller. Null and `failure`: nobody is there, or it cannot be done.
    static std::unique_ptr<SharedStream> dial(const core::Endpoint& target, const core::Endpoint& source,
                                              std::size_t ring_bytes, SharedMemoryUse& use, Failure& failure);
    // A socket that was accepted, or any end of a connected pair of Unix sockets. Owns it.
    static std::unique_ptr<SharedStream> accepted(int socket, SharedMemoryUse& use);
    static std::unique_ptr<SharedStream> dialled(int socket, const core::Endpoint& source, std::size_t ring_bytes,
                                                 SharedMemoryUse& use, std::string& reason);
    ~SharedStream() override { close(); }
    SharedStream(const SharedStream&) = delete;
    SharedStream& operator=(const SharedStream&) = delete;

    // Where an accepted stream comes from, by its own account. The caller must check that it is an address of this host.
    const core::Endpoint& source() const { return source_; }

    int descriptor() const override { return socket_; }
    Opening open(std::string& reason) override;
    Wait opening_wait() override { return Wait::readable; }
    ssize_t receive(std::span<const iovec> parts) override;
    ssize_t send(std::span<const iovec> parts, bool more) override;
    void shut_down_output() override;
    Wait input_wait() override;
    Wait output_wait() override;
    void woken() override;
    void close() override;

private:
    enum class Stage : std::uint8_t { expects_hello, expects_reply, expects_confirmation, open };

    SharedStream(int socket, Side side, SharedMemoryUse& use) : socket_(socket), side_(side), use_(use) {}
    bool say_hello(std::size_t ring_bytes, std::string& reason);
    bool take_hello(std::string& reason);
    bool take_token(std::string& reason);
    // Reads until `wanted` bytes are in inbox_. waiting: not all are there yet.
    Opening fill_inbox(std::size_t wanted, std::string& reason);
    void begin();
    void ring_bell();

    int socket_;
    const Side side_;
    SharedMemoryUse& use_;
    Stage stage_ = Stage::expects_hello;
    core::Endpoint source_;
    std::vector<std::uint8_t> inbox_;  // the message that arrives, while the stream opens
    int passed_ = -1;                  // the memory file that came with it
    SharedToken token_{};              // written into the segment by this end; the other end must send it
    std::unique_ptr<SharedSegment> segment_;
    RingWriter writer_;
    RingReader reader_;
    bool other_gone_ = false;  // the socket is closed at the other end: what is in the ring now is all
};

// A listener beside the TCP listener at `local` (address all zero: on every address). -1 and `error` on failure.
int shared_listen(const core::Endpoint& local, std::string& error);
// A connected socket, or -1 with errno set. A process of another user is refused: -1, and errno is EPERM.
int shared_accept(int listener);

}  // namespace pccl::real
