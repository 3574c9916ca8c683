#include "net-real/streams/tcp_stream.hpp"

#include "net-real/sockets.hpp"

#include <sys/socket.h>

namespace pccl::real {

namespace {

constexpr int stripe_unsent_bytes = 512 << 10;

msghdr message_of(std::span<const iovec> parts) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());
    message.msg_iovlen = parts.size();
    return message;
}

}  // namespace

Stream::Opening TcpStream::open(std::string& reason) {
    reason = dial_result(descriptor_);
    return reason.empty() ? Opening::open : Opening::failed;
}

ssize_t TcpStream::receive(std::span<const iovec> parts) {
    msghdr message = message_of(parts);
    return ::recvmsg(descriptor_, &message, 0);
}

ssize_t TcpStream::send(std::span<const iovec> parts, bool more) {
    const msghdr message = message_of(parts);
    return ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
}

void TcpStream::shut_down_output() { ::shutdown(descriptor_, SHUT_WR); }

void TcpStream::apply(const SocketOptions& options) { apply_options(descriptor_, options); }

void TcpStream::limit_unsent() {
    if (unsent_limited_) return;
    unsent_limited_ = true;
    real::limit_unsent(descriptor_, stripe_unsent_bytes);
}

void TcpStream::close() {
    close_socket(descriptor_);
    descriptor_ = -1;
}

}  // namespace pccl::real
