#include "ring_peer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace pccl::bench {

namespace {

// target = a + b. Adds eight floats at a time explicitly, so that the speed does not depend on the compiler's
// vectorization.
void add_arrays(float* target, const float* a, const float* b, std::size_t count) {
    typedef float Lanes __attribute__((vector_size(32)));
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        Lanes x, y;
        std::memcpy(&x, a + i, sizeof x);
        std::memcpy(&y, b + i, sizeof y);
        x += y;
        std::memcpy(target + i, &x, sizeof x);
    }
    for (; i < count; ++i) target[i] = a[i] + b[i];
}

}  // namespace

RingPeer::RingPeer(unsigned rank, unsigned peers, std::size_t elements, int previous, int next, float* buffer,
                   const float* source, float* scratch)
    : rank_(rank), peers_(peers), elements_(elements), previous_(previous), next_(next),
      target_(reinterpret_cast<char*>(buffer)), source_(reinterpret_cast<const char*>(source)),
      scratch_(reinterpret_cast<char*>(scratch)) {}

RingPeer::Part RingPeer::part(unsigned index) const {
    const std::size_t i = index % peers_;
    return {elements_ * i / peers_ * sizeof(float), elements_ * (i + 1) / peers_ * sizeof(float)};
}

void RingPeer::add(std::size_t offset, std::size_t bytes) {
    auto* target = reinterpret_cast<float*>(target_ + offset);
    const auto* source = reinterpret_cast<const float*>(source_ + offset);
    const auto* incoming = reinterpret_cast<const float*>(scratch_);
    add_arrays(target, source, incoming, bytes / sizeof(float));
}

RingPeer::Progress RingPeer::receive() {
    if (receive_step_ == steps()) return Progress::waits;
    const Part incoming = part(rank_ + 2 * peers_ - 1 - receive_step_);
    const bool reducing = receive_step_ < peers_ - 1;
    const std::size_t rest = incoming.size() - received_in_step_ - gathered_;
    char* place = reducing ? scratch_ + gathered_ : target_ + incoming.begin + received_in_step_;
    const std::size_t room = reducing ? std::min(rest, ring_segment_bytes - gathered_) : rest;
    const ssize_t got = room == 0 ? 0 : recv(previous_, place, room, 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR ? Progress::waits : Progress::failed;
    if (got == 0 && room != 0) return Progress::failed;
    const auto bytes = static_cast<std::size_t>(got);
    std::size_t done = bytes;
    if (reducing) {
        gathered_ += bytes;
        done = 0;
        if (gathered_ == ring_segment_bytes || received_in_step_ + gathered_ == incoming.size()) {
            add(incoming.begin + received_in_step_, gathered_);
            done = gathered_;
            gathered_ = 0;
        }
    }
    received_in_step_ += done;
    processed_ += done;
    if (received_in_step_ == incoming.size()) {
        ++receive_step_;
        received_in_step_ = 0;
    }
    return Progress::moved;
}

RingPeer::Progress RingPeer::transmit() {
    if (send_step_ == steps()) return Progress::waits;
    const std::size_t sendable = part(rank_).size() + processed_ - sent_;
    const Part outgoing = part(rank_ + 2 * peers_ - send_step_);
    const std::size_t rest = std::min({outgoing.size() - sent_in_step_, sendable, ring_segment_bytes});
    const char* from = (send_step_ == 0 ? source_ : target_) + outgoing.begin + sent_in_step_;
    const ssize_t put = rest == 0 ? 0 : send(next_, from, rest, MSG_NOSIGNAL);
    if (put < 0 && errno != EAGAIN && errno != EINTR) return Progress::failed;
    if (put > 0) {
        sent_ += static_cast<std::size_t>(put);
        sent_in_step_ += static_cast<std::size_t>(put);
    }
    if (sent_in_step_ == outgoing.size()) {
        ++send_step_;
        sent_in_step_ = 0;
        return Progress::moved;
    }
    return put > 0 ? Progress::moved : Progress::waits;
}

RingPeer::Progress RingPeer::advance() {
    const Progress received = receive();
    if (received == Progress::failed) return received;
    const Progress sent = transmit();
    if (sent == Progress::failed) return sent;
    if (send_step_ == steps() && receive_step_ == steps()) {
        send_step_ = receive_step_ = 0;
        sent_ = processed_ = 0;
        return Progress::done;
    }
    return received == Progress::moved || sent == Progress::moved ? Progress::moved : Progress::waits;
}

void RingPeer::wanted(pollfd* fds) const {
    const bool for_input = receive_step_ < steps();
    const bool for_output = send_step_ < steps() && part(rank_).size() + processed_ > sent_;
    fds[0] = {previous_, static_cast<short>(for_input ? POLLIN : 0), 0};
    fds[1] = {next_, static_cast<short>(for_output ? POLLOUT : 0), 0};
}

bool RingPeer::run() {
    while (true) {
        const Progress progress = advance();
        if (progress == Progress::done) return true;
        if (progress == Progress::failed) return false;
        if (progress == Progress::moved) continue;
        pollfd fds[2];
        wanted(fds);
        if (poll(fds, 2, 10'000) <= 0 && errno != EINTR) return false;
    }
}

int ring_socket(const std::string& congestion_control) {
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made >= 0 && !congestion_control.empty()) {
        setsockopt(made, IPPROTO_TCP, TCP_CONGESTION, congestion_control.data(),
                   static_cast<socklen_t>(congestion_control.size()));
    }
    return made;
}

void prepare_ring_socket(int socket) {
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
}

}  // namespace pccl::bench
