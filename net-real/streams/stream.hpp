// The bytes of one connection, whatever carries them: a TCP connection, or memory shared with a process of this host.
//
// A stream never blocks. It owns one descriptor, which the event loop watches. The two directions may need the same
// readiness, and input may be there although the descriptor is not readable. So the caller asks before each wait
// (opening_wait, input_wait, output_wait), and when the descriptor is ready it calls woken() and then serves every
// direction that waits for this readiness.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <sys/types.h>
#include <sys/uio.h>

namespace pccl::real {

struct SocketOptions;

class Stream {
public:
    // What must come before the next call can do anything. now: nothing, call again in another turn.
    enum class Wait : std::uint8_t { now, readable, writable };
    enum class Opening : std::uint8_t { waiting, open, failed };

    virtual ~Stream() = default;
    virtual int descriptor() const = 0;

    // ---- opening: until `open`, no other call but opening_wait(), woken() and close() is allowed
    virtual Opening open(std::string& reason) = 0;
    virtual Wait opening_wait() = 0;

    // ---- bytes
    // As recvmsg and sendmsg on a non-blocking socket: a number of bytes; 0 at the end of the input; or -1 and errno,
    // which is EAGAIN if the caller must wait. With `more`, the next send follows at once.
    virtual ssize_t receive(std::span<const iovec> parts) = 0;
    virtual ssize_t send(std::span<const iovec> parts, bool more) = 0;
    // Bytes that send() took, but the system has not. The caller waits with output_wait(), then calls send_unsent(), also
    // if it has nothing more to send. False: the stream has failed, as send() does.
    virtual bool has_unsent() const { return false; }
    virtual bool send_unsent() { return true; }
    // The cause of the last failure of receive() or send(), before errno changes.
    virtual std::string error_text() const { return std::strerror(errno); }
    // Bytes that were sent arrive, and then the other end sees the end of its input.
    virtual void shut_down_output() = 0;

    // ---- waiting
    virtual Wait input_wait() = 0;
    virtual Wait output_wait() = 0;
    virtual void woken() {}

    virtual void apply(const SocketOptions&) {}
    // Payload follows. Limits the bytes that wait in the system, so that control frames do not wait behind much payload.
    virtual void limit_unsent() {}
    // Releases the descriptor and all memory. No other call may follow.
    virtual void close() = 0;
};

}  // namespace pccl::real
