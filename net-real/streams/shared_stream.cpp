#include "net-real/streams/shared_stream.hpp"

#include "core/base/format.hpp"
#include "net-real/descriptors.hpp"
#include "net-real/sockets.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace pccl::real {

namespace {

// ---- messages on the socket while a stream opens. Both ends run on one host, so numbers are in its byte order.
constexpr std::size_t magic_bytes = 8;
constexpr char hello_magic[] = "pcclshm1";
constexpr char token_magic[] = "pccltok1";
// From the dialler, together with the memory file.
struct Hello {
    char magic[magic_bytes];
    std::uint64_t ring_bytes;
    std::uint8_t source[16];
    std::uint8_t source_is_v6;
    std::uint8_t unused[7];
};
static_assert(sizeof(Hello) == 40);
// From the acceptor with the dialler's token, then from the dialler with the acceptor's.
struct TokenMessage {
    char magic[magic_bytes];
    SharedToken token;
};
static_assert(sizeof(TokenMessage) == 24);

constexpr std::size_t descriptors_heard = 4;  // room for more than the one allowed, so that they are seen and closed
constexpr int backlog = 64;

std::string last_error(const char* what) { return core::formatted("{}: {}", what, std::strerror(errno)); }

int open_unix_socket() {
    const std::lock_guard lock(descriptors::guard());
    const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (descriptor >= 0) descriptors::track(descriptor);
    return descriptor;
}

// An abstract name: it belongs to the network namespace, like the port, and vanishes with the socket.
socklen_t name_of(const core::Endpoint& local, bool is_any, sockaddr_un& out) {
    core::Endpoint named = is_any ? core::Endpoint{} : local;
    named.port = local.port;
    const std::string name = core::formatted("pccl-link-1/{}", core::to_text(named));
    std::memset(&out, 0, sizeof out);
    out.sun_family = AF_UNIX;
    std::memcpy(out.sun_path + 1, name.data(), name.size());  // the first byte, 0, makes it abstract
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool is_of_this_user(int socket) {
    ucred other{};
    socklen_t length = sizeof other;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == ::geteuid();
}

bool send_all(int socket, const void* data, std::size_t bytes) {
    return ::send(socket, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

// Takes the descriptors of a message. Returns the only one; -1 if there was none, several, or if some were cut off.
int take_passed(msghdr& message, bool& malformed) {
    std::vector<int> passed;
    malformed = (message.msg_flags & MSG_CTRUNC) != 0;
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
            malformed = true;
            continue;
        }
        const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int descriptor = -1;
            std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof descriptor);
            passed.push_back(descriptor);
        }
    }
    if (passed.size() > 1) malformed = true;
    if (!malformed && passed.size() == 1) return passed.front();
    for (const int descriptor : passed) ::close(descriptor);
    return -1;
}

}  // namespace

// ---- listening and dialling --------------------------------------------------------------------------------------

int shared_listen(const core::Endpoint& local, std::string& error) {
    const int descriptor = open_unix_socket();
    sockaddr_un name;
    const socklen_t length = name_of(local, local.address == core::Endpoint{}.address, name);
    if (descriptor >= 0 && ::bind(descriptor, reinterpret_cast<const sockaddr*>(&name), length) == 0 &&
        ::listen(descriptor, backlog) == 0)
        return descriptor;
    error = last_error("listen for processes of this host");
    close_socket(descriptor);
    return -1;
}

int shared_accept(int listener) {
    int descriptor = -1;
    {
        const std::lock_guard lock(descriptors::guard());
        descriptor = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (descriptor < 0) return -1;
        descriptors::track(descriptor);
    }
    if (is_of_this_user(descriptor)) return descriptor;
    close_socket(descriptor);
    errno = EPERM;
    return -1;
}

std::unique_ptr<SharedStream> SharedStream::dial(const core::Endpoint& target, const core::Endpoint& source,
                                                 std::size_t ring_bytes, SharedMemoryUse& use, Failure& failure) {
    const int socket = open_unix_socket();
    if (socket < 0) {
        failure.reason = last_error("socket");
        return nullptr;
    }
    // The listener has the port on this address, or on every address.
    for (const bool is_any : {false, true}) {
        sockaddr_un name;
        const socklen_t length = name_of(target, is_any, name);
        if (::connect(socket, reinterpret_cast<const sockaddr*>(&name), length) == 0) {
            if (is_of_this_user(socket)) return dialled(socket, source, ring_bytes, use, failure.reason);
            failure = {"the process there belongs to another user", true};
            break;
        }
        if (errno == ECONNREFUSED) {
            failure.reason = "no process in this network namespace offers it there";
            continue;
        }
        failure = {last_error("connect"), errno == EACCES || errno == EPERM};
        break;
    }
    close_socket(socket);
    return nullptr;
}

std::unique_ptr<SharedStream> SharedStream::dialled(int socket, const core::Endpoint& source, std::size_t ring_bytes,
                                                    SharedMemoryUse& use, std::string& reason) {
    std::unique_ptr<SharedStream> stream(new SharedStream(socket, Side::dialler, use));
    stream->source_ = source;
    if (!stream->say_hello(ring_bytes, reason)) return nullptr;
    return stream;
}

std::unique_ptr<SharedStream> SharedStream::accepted(int socket, SharedMemoryUse& use) {
    return std::unique_ptr<SharedStream>(new SharedStream(socket, Side::acceptor, use));
}

// ---- opening -----------------------------------------------------------------------------------------------------

bool SharedStream::say_hello(std::size_t ring_bytes, std::string& reason) {
    int file = -1;
    segment_ = SharedSegment::make(ring_bytes, use_, file, reason);
    if (segment_ == nullptr) return false;
    token_ = segment_->write_token(side_);
    Hello hello{};
    std::memcpy(hello.magic, hello_magic, magic_bytes);
    hello.ring_bytes = ring_bytes;
    std::memcpy(hello.source, source_.address.data(), sizeof hello.source);
    hello.source_is_v6 = source_.is_v6 ? 1 : 0;
    iovec part{&hello, sizeof hello};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const passed = CMSG_FIRSTHDR(&message);
    passed->cmsg_level = SOL_SOCKET;
    passed->cmsg_type = SCM_RIGHTS;
    passed->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(passed), &file, sizeof file);
    const ssize_t sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    const bool ok = sent == static_cast<ssize_t>(sizeof hello);
    if (!ok) reason = last_error("pass shared memory");
    close_socket(file);
    stage_ = Stage::expects_reply;
    return ok;
}

Stream::Opening SharedStream::fill_inbox(std::size_t wanted, std::string& reason) {
    while (inbox_.size() < wanted) {
        std::uint8_t buffer[sizeof(Hello)];
        iovec part{buffer, wanted - inbox_.size()};
        alignas(cmsghdr) char control[CMSG_SPACE(descriptors_heard * sizeof(int))] = {};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        ssize_t received = 0;
        bool malformed = false;
        {
            const std::lock_guard lock(descriptors::guard());
            received = ::recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
            const int passed = received < 0 ? -1 : take_passed(message, malformed);
            if (passed >= 0 && (passed_ >= 0 || stage_ != Stage::expects_hello)) {
                ::close(passed);
                malformed = true;
            } else if (passed >= 0) {
                passed_ = passed;
                descriptors::track(passed_);
            }
        }
        if (malformed) {
            reason = "it passed what it may not pass";
            return Opening::failed;
        }
        if (received < 0 && errno == EINTR) continue;
        if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Opening::waiting;
        if (received <= 0) {
            reason = received == 0 ? "declined by the other end" : last_error("receive");
            return Opening::failed;
        }
        inbox_.insert(inbox_.end(), buffer, buffer + received);
    }
    return Opening::open;
}

bool SharedStream::take_hello(std::string& reason) {
    Hello hello;
    std::memcpy(&hello, inbox_.data(), sizeof hello);
    inbox_.clear();
    if (std::memcmp(hello.magic, hello_magic, magic_bytes) != 0 || hello.source_is_v6 > 1 || passed_ < 0) {
        reason = "its greeting is malformed";
        return false;
    }
    source_.is_v6 = hello.source_is_v6 != 0;
    std::memcpy(source_.address.data(), hello.source, source_.is_v6 ? 16 : 4);
    if (hello.ring_bytes > SharedSegment::ring_bytes_max) {
        reason = "the size of its rings is not allowed";
        return false;
    }
    segment_ = SharedSegment::adopt(passed_, static_cast<std::size_t>(hello.ring_bytes), use_, reason);
    close_socket(passed_);
    passed_ = -1;
    if (segment_ == nullptr) return false;
    token_ = segment_->write_token(side_);
    TokenMessage reply{{}, segment_->read_token(Side::dialler)};
    std::memcpy(reply.magic, token_magic, magic_bytes);
    if (send_all(socket_, &reply, sizeof reply)) return true;
    reason = last_error("send");
    return false;
}

bool SharedStream::take_token(std::string& reason) {
    TokenMessage message;
    std::memcpy(&message, inbox_.data(), sizeof message);
    inbox_.clear();
    if (std::memcmp(message.magic, token_magic, magic_bytes) == 0 && message.token == token_) return true;
    reason = "it does not have the token of the shared memory";
    return false;
}

Stream::Opening SharedStream::open(std::string& reason) {
    if (stage_ == Stage::expects_hello) {
        const Opening progress = fill_inbox(sizeof(Hello), reason);
        if (progress != Opening::open) return progress;
        if (!take_hello(reason)) return Opening::failed;
        stage_ = Stage::expects_confirmation;
    }
    const Opening progress = fill_inbox(sizeof(TokenMessage), reason);
    if (progress != Opening::open) return progress;
    if (!take_token(reason)) return Opening::failed;
    if (stage_ == Stage::expects_reply) {
        TokenMessage confirmation{{}, segment_->read_token(Side::acceptor)};
        std::memcpy(confirmation.magic, token_magic, magic_bytes);
        if (!send_all(socket_, &confirmation, sizeof confirmation)) {
            reason = last_error("send");
            return Opening::failed;
        }
    }
    begin();
    return Opening::open;
}

void SharedStream::begin() {
    stage_ = Stage::open;
    inbox_ = {};
    writer_ = segment_->writer(side_);
    reader_ = segment_->reader(side_);
}

// ---- bytes -------------------------------------------------------------------------------------------------------

ssize_t SharedStream::receive(std::span<const iovec> parts) {
    // What the other end did before it ended or died is in the ring when this is seen.
    const bool is_over = other_gone_ || reader_.has_ended();
    const std::size_t bytes = reader_.read(parts);
    if (reader_.must_wake_writer()) ring_bell();
    if (bytes > 0) return static_cast<ssize_t>(bytes);
    if (reader_.is_broken()) {
        errno = EPROTO;
        return -1;
    }
    if (is_over) return 0;
    errno = EAGAIN;
    return -1;
}

ssize_t SharedStream::send(std::span<const iovec> parts, bool /*more*/) {
    if (other_gone_) {
        errno = EPIPE;
        return -1;
    }
    const std::size_t bytes = writer_.write(parts);
    if (bytes > 0 && writer_.must_wake_reader()) ring_bell();
    if (bytes > 0) return static_cast<ssize_t>(bytes);
    errno = writer_.is_broken() ? EPROTO : EAGAIN;
    return -1;
}

void SharedStream::shut_down_output() {
    writer_.end();
    if (writer_.must_wake_reader()) ring_bell();
}

// ---- waiting -----------------------------------------------------------------------------------------------------

Stream::Wait SharedStream::input_wait() { return !other_gone_ && reader_.sleep() ? Wait::readable : Wait::now; }

Stream::Wait SharedStream::output_wait() { return !other_gone_ && writer_.sleep() ? Wait::readable : Wait::now; }

void SharedStream::woken() {
    if (stage_ != Stage::open) return;
    // More than a few bytes come only from an end that lies. The rest makes the socket readable again.
    char bells[64];
    const ssize_t received = ::recv(socket_, bells, sizeof bells, MSG_DONTWAIT);
    if (received == 0 || (received < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        other_gone_ = true;
}

// If the socket is full, the other end has not heard earlier bells. It hears them when it wakes up.
void SharedStream::ring_bell() { static_cast<void>(::send(socket_, "!", 1, MSG_NOSIGNAL | MSG_DONTWAIT)); }

void SharedStream::close() {
    close_socket(socket_);
    socket_ = -1;
    close_socket(passed_);
    passed_ = -1;
    writer_ = {};
    reader_ = {};
    segment_.reset();
}

}  // namespace pccl::real
