#include "net-real/streams/tls_stream.hpp"

#include "net-real/sockets.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <openssl/err.h>
#include <sys/socket.h>

namespace pccl::real {

namespace {

constexpr std::size_t record_bytes = SSL3_RT_MAX_PLAIN_LENGTH;  // 16 KiB
// A read for at least so many bytes is for the body of a record with payload. See give_input().
constexpr std::size_t large_read_bytes = 4 << 10;
// What is read ahead, first and from the first such read on. A system call costs more than a copy within the cache.
constexpr std::size_t small_read_ahead_bytes = 4 << 10;
constexpr std::size_t large_read_ahead_bytes = 128 << 10;
// So many full records leave with one system call.
constexpr std::size_t records_at_once = 16;
constexpr int stripe_unsent_bytes = 512 << 10;
// RFC 8446, 5.5: AES-GCM takes 2^24.5 full records with one key.
constexpr std::uint64_t records_max = std::uint64_t{1} << 23;
constexpr std::uint8_t handshake_record = 22;
// More is never waiting for the socket: send() encrypts no further round before.
constexpr std::size_t unsent_bytes_max = 1 << 20;
// Messages of TLS itself behind the handshake, such as new keys. Each costs time, and may ask for an answer. So many are
// taken at once, and one more for each of these bytes of data; this library sends one for records_max records.
constexpr std::uint64_t messages_at_once = 8;
constexpr std::uint64_t bytes_for_a_message = 1 << 20;

}  // namespace

// ---- making ------------------------------------------------------------------------------------------------------

int TlsStream::take_output(BIO* bio, const char* data, int bytes) {
    auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
    const auto* encrypted = reinterpret_cast<const std::uint8_t*>(data);
    std::size_t sent = 0;
    const std::size_t size = static_cast<std::size_t>(bytes);
    if (stream.sends_at_once_ && !stream.next_goes_with_it_ && !stream.has_unsent() && stream.lost_by_ == 0) {
        ssize_t result = 0;
        do {
            result = ::send(stream.descriptor_, encrypted, size, MSG_NOSIGNAL | (stream.more_follows_ ? MSG_MORE : 0));
        } while (result < 0 && errno == EINTR);
        if (result >= 0)
            sent = static_cast<std::size_t>(result);
        else if (errno != EAGAIN && errno != EWOULDBLOCK)
            stream.lost_by_ = errno;
    }
    if (sent == size) return bytes;
    auto& out = stream.out_;
    if (out.size() - stream.sent_ + size - sent > unsent_bytes_max) return -1;
    try {
        out.insert(out.end(), encrypted + sent, encrypted + size);
    } catch (const std::bad_alloc&) {
        return -1;
    }
    return bytes;
}

// OpenSSL asks for the head of a record, then for its body. One system call reads what OpenSSL asks for into its memory,
// and what comes behind it into in_, from where the next records are copied. OpenSSL's own reading ahead moves what it
// has read to the beginning of its buffer, once for each record.
int TlsStream::give_input(BIO* bio, char* target, int bytes) {
    auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    std::size_t wanted = static_cast<std::size_t>(bytes);
    // What comes first is looked at before OpenSSL reads it, see examine_meeting().
    if (stream.meeting_ != Meeting::never) {
        BIO_set_retry_read(bio);
        errno = EAGAIN;
        return -1;
    }
    if (stream.in_begin_ < stream.in_end_) {
        wanted = std::min(wanted, stream.in_end_ - stream.in_begin_);
        std::memcpy(target, stream.in_.data() + stream.in_begin_, wanted);
        stream.in_begin_ += wanted;
        return static_cast<int>(wanted);
    }
    if (wanted >= large_read_bytes && stream.stage_ == Stage::open) stream.read_further_ahead();
    iovec parts[] = {{target, wanted}, {stream.in_.data(), stream.in_.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    ssize_t got = 0;
    do {
        got = ::recvmsg(stream.descriptor_, &message, 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) BIO_set_retry_read(bio);
        return -1;
    }
    if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
    const std::size_t direct = std::min(wanted, static_cast<std::size_t>(got));
    stream.in_begin_ = 0;
    stream.in_end_ = static_cast<std::size_t>(got) - direct;
    return static_cast<int>(direct);
}

// Only for an end with a certificate: whoever asks for one gets no memory by long records. If memory is short, it reads
// as before.
void TlsStream::read_further_ahead() {
    if (in_.size() >= large_read_ahead_bytes || SSL_get0_peer_certificate(ssl_.get()) == nullptr) return;
    try {
        in_.resize(large_read_ahead_bytes);
    } catch (const std::bad_alloc&) {
    }
}

const BIO_METHOD* TlsStream::socket_method() {
    static const BIO_METHOD* const method = [] {
        BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "pccl socket");
        if (made == nullptr) return made;
        BIO_meth_set_write(made, &TlsStream::take_output);
        BIO_meth_set_read(made, &TlsStream::give_input);
        BIO_meth_set_ctrl(made, [](BIO* bio, int command, long, void*) -> long {
            if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
            return command == BIO_CTRL_FLUSH;
        });
        return made;
    }();
    return method;
}

void TlsStream::see_message(int is_sent, int, int type, const void*, std::size_t, SSL*, void* stream) {
    if (is_sent == 0 && type == SSL3_RT_HANDSHAKE) ++static_cast<TlsStream*>(stream)->messages_;
}

std::unique_ptr<TlsStream> TlsStream::make(int descriptor, Stage stage, std::shared_ptr<const tls::Context> context,
                                           tls::Protocol protocol) {
    std::unique_ptr<TlsStream> stream(new TlsStream(descriptor, stage, std::move(context)));
    if (!stream->set_ssl(stage == Stage::connecting, protocol)) return nullptr;
    stream->in_.resize(small_read_ahead_bytes);
    return stream;
}

bool TlsStream::set_ssl(bool dials, tls::Protocol protocol) {
    ssl_ = context_->connection(dials, protocol);
    BIO* const socket = socket_method() == nullptr ? nullptr : BIO_new(socket_method());
    if (ssl_ == nullptr || socket == nullptr) {
        BIO_free(socket);
        return false;
    }
    BIO_set_data(socket, this);
    BIO_set_init(socket, 1);
    SSL_set_bio(ssl_.get(), socket, socket);
    SSL_set_app_data(ssl_.get(), &tickets_);
    return true;
}

std::unique_ptr<TlsStream> TlsStream::dialled(int descriptor, std::shared_ptr<const tls::Context> context,
                                              tls::Protocol protocol, Meeting meeting) {
    auto stream = make(descriptor, Stage::connecting, std::move(context), protocol);
    if (stream != nullptr) stream->meeting_ = meeting;
    return stream;
}

std::unique_ptr<TlsStream> TlsStream::accepted(int descriptor, std::shared_ptr<const tls::Context> context) {
    return make(descriptor, Stage::expects_tls, std::move(context), tls::Protocol::none);
}

// ---- opening -----------------------------------------------------------------------------------------------------

Stream::Opening TlsStream::look_at_first_byte(std::string& reason) {
    std::uint8_t first = 0;
    const ssize_t got = ::recv(descriptor_, &first, 1, MSG_PEEK);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Opening::waiting;
    if (got < 0) {
        reason = std::string("receive: ") + std::strerror(errno);
        return Opening::failed;
    }
    if (got == 0) {
        was_abandoned_ = true;
        reason = "the other end closed the connection before it said anything";
        return Opening::failed;
    }
    if (first == handshake_record) return Opening::open;
    is_plaintext_ = true;
    reason = "the other end does not speak TLS";
    return Opening::failed;
}

bool TlsStream::examine_meeting(std::string& reason) {
    constexpr std::size_t head_bytes = 5;
    constexpr std::uint8_t client_hello = 1;
    // A part of what is looked for stays in in_, so that the next call waits for more and not for what is there.
    while (skipped_ == 0 ? in_end_ <= head_bytes : skipped_ > in_end_) {
        if (skipped_ > 0) skipped_ -= std::exchange(in_end_, 0);
        const ssize_t got = ::recv(descriptor_, in_.data() + in_end_, in_.size() - in_end_, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return !began_;
        if (got <= 0) {
            meeting_ = Meeting::never;  // so that the handshake finds the end or the error
            return true;
        }
        in_end_ += static_cast<std::size_t>(got);
    }
    const bool met = in_[0] == handshake_record && in_[head_bytes] == client_hello;
    if (skipped_ == 0 && met && meeting_ == Meeting::leads) {
        skipped_ = head_bytes + static_cast<std::size_t>(in_[3] << 8 | in_[4]);
        if (skipped_ <= head_bytes + SSL3_RT_MAX_PLAIN_LENGTH) return examine_meeting(reason);
        reason = "TLS handshake: the first message of the other end is too long";
        return true;
    }
    // What was sent is skipped there. It must be complete, so it stays in out_.
    if (met && meeting_ == Meeting::yields && !set_ssl(false, tls::Protocol::none))
        reason = "no memory for a TLS connection";
    in_begin_ = skipped_;
    meeting_ = Meeting::never;
    return true;
}

Stream::Opening TlsStream::open(std::string& reason) {
    if (stage_ == Stage::connecting) {
        reason = dial_result(descriptor_);
        if (!reason.empty()) return Opening::failed;
        stage_ = Stage::handshake;
    }
    if (stage_ == Stage::expects_tls) {
        const Opening seen = look_at_first_byte(reason);
        if (seen != Opening::open) return seen;
        stage_ = Stage::handshake;
    }
    if (meeting_ != Meeting::never && !examine_meeting(reason)) return Opening::waiting;
    if (!reason.empty()) return Opening::failed;
    began_ = true;
    ERR_clear_error();
    errno = 0;
    const int done = SSL_do_handshake(ssl_.get());
    const int error = SSL_get_error(ssl_.get(), done);
    const int cause = errno;
    const bool sent = send_unsent();
    if (done == 1 && SSL_session_reused(ssl_.get()) == 1 && !is_in_time()) {
        reason = "the certificate of the other end has expired since the connection whose ticket it uses";
        return Opening::failed;
    }
    if (done == 1) {
        stage_ = Stage::open;
        SSL_set_msg_callback(ssl_.get(), &TlsStream::see_message);
        SSL_set_msg_callback_arg(ssl_.get(), this);
        sends_at_once_ = true;
        // Data may have come with the last message of the handshake.
        drained_ = SSL_has_pending(ssl_.get()) == 0 && in_begin_ == in_end_;
        return Opening::open;
    }
    if (error == SSL_ERROR_WANT_READ && sent) return Opening::waiting;
    std::string why = tls::take_error();
    if (why.empty() && error == SSL_ERROR_SYSCALL && cause != 0) why = std::strerror(cause);
    has_refused_ = !why.empty() && error == SSL_ERROR_SSL;
    const bool was_reset = error == SSL_ERROR_SYSCALL && cause == ECONNRESET;
    was_abandoned_ = (why.empty() || was_reset) && SSL_get_verify_result(ssl_.get()) == X509_V_OK;
    reason = tls::explain_failure(*ssl_, why, context_->is_from_files());
    return Opening::failed;
}

void TlsStream::use_tickets(tls::Sessions& sessions, const core::Uuid& peer) {
    tickets_ = {&sessions, peer, sessions.generation()};
    if (SSL_SESSION* const session = sessions.find(peer)) SSL_set_session(ssl_.get(), session);
}

bool TlsStream::is_in_time() const {
    const X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
    return certificate != nullptr && X509_cmp_current_time(X509_get0_notAfter(certificate)) > 0;
}

Stream::Wait TlsStream::opening_wait() {
    return stage_ == Stage::connecting || has_unsent() ? Wait::writable : Wait::readable;
}

std::optional<tls::CertificateName> TlsStream::other_end() const {
    X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
    if (certificate == nullptr) return std::nullopt;
    if (!context_->is_from_files()) return tls::name_of(*certificate);
    if (SSL_is_server(ssl_.get()) == 0) return tls::name_by_key(*certificate, nullptr);
    const char* const claimed = SSL_get_servername(ssl_.get(), TLSEXT_NAMETYPE_host_name);
    return tls::name_by_key(*certificate, claimed == nullptr ? "" : claimed);
}

void TlsStream::go_plain() {
    out_.clear();
    sent_ = 0;
    stage_ = Stage::plain;
    drained_ = true;
}

// ---- bytes -------------------------------------------------------------------------------------------------------

ssize_t TlsStream::receive(std::span<const iovec> parts) {
    if (stage_ == Stage::plain) {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(parts.data());
        message.msg_iovlen = parts.size();
        return ::recvmsg(descriptor_, &message, 0);
    }
    std::size_t total = 0;
    drained_ = false;
    for (const iovec& part : parts) {
        for (std::size_t filled = 0; filled < part.iov_len;) {
            ERR_clear_error();
            errno = 0;
            std::size_t got = 0;
            const std::uint64_t messages = messages_;
            const int done = SSL_read_ex(ssl_.get(), static_cast<std::uint8_t*>(part.iov_base) + filled,
                                         part.iov_len - filled, &got);
            if (done == 1) {
                filled += got;
                total += got;
                received_ += got;
                continue;
            }
            const int error = SSL_get_error(ssl_.get(), done);
            const int cause = errno;
            if (error == SSL_ERROR_WANT_READ && messages_ != messages) {
                if (messages_ <= messages_at_once + received_ / bytes_for_a_message) continue;
                failure_ = "the other end changes its keys all the time";
                errno = EPROTO;
                return -1;
            }
            if (error == SSL_ERROR_WANT_READ) drained_ = true;
            if (total > 0) return static_cast<ssize_t>(total);  // an end or an error is reported by the next call
            if (error == SSL_ERROR_WANT_READ) {
                errno = EAGAIN;
                return -1;
            }
            if (error == SSL_ERROR_ZERO_RETURN) return 0;
            failure_ = tls::explain_alert(tls::take_error());
            errno = error == SSL_ERROR_SYSCALL && cause != 0 && cause != EAGAIN ? cause : EPROTO;
            return -1;
        }
    }
    return static_cast<ssize_t>(total);
}

bool TlsStream::encrypt(const void* data, std::size_t bytes) {
    std::size_t written = 0;
    ERR_clear_error();
    if (SSL_write_ex(ssl_.get(), data, bytes, &written) == 1 && written == bytes) {
        if (++records_ == records_max) {
            records_ = 0;
            SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED);
        }
        return true;
    }
    failure_ = tls::take_error();
    errno = EPROTO;
    return false;
}

// The bytes of the next record: where the caller has them, or small pieces together. `offset` is in the first of
// `parts`.
std::span<const std::uint8_t> TlsStream::next_record(std::span<const iovec>& parts, std::size_t& offset) {
    gather_.clear();
    while (!parts.empty() && gather_.size() < record_bytes) {
        const std::size_t left = parts.front().iov_len - offset;
        const auto* const data = static_cast<const std::uint8_t*>(parts.front().iov_base) + offset;
        const std::size_t taken = std::min(left, record_bytes - gather_.size());
        const bool is_alone = gather_.empty() && (taken == record_bytes || (parts.size() == 1 && taken > 0));
        if (!is_alone) gather_.insert(gather_.end(), data, data + taken);
        offset += taken;
        if (taken == left) {
            parts = parts.subspan(1);
            offset = 0;
        }
        if (is_alone) return {data, taken};
    }
    return gather_;
}

ssize_t TlsStream::send(std::span<const iovec> parts, bool more) {
    if (stage_ == Stage::plain) {
        msghdr message{};
        message.msg_iov = const_cast<iovec*>(parts.data());
        message.msg_iovlen = parts.size();
        return ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | (more ? MSG_MORE : 0));
    }
    if (!send_unsent()) return -1;
    std::size_t bytes = 0;
    for (const iovec& part : parts) bytes += part.iov_len;
    std::size_t taken = 0;
    for (std::size_t offset = 0; taken < bytes && !has_unsent();) {
        std::size_t records = 0;
        do {
            const auto record = next_record(parts, offset);
            taken += record.size();
            more_follows_ = more || taken < bytes;
            next_goes_with_it_ = taken < bytes && ++records < records_at_once;
            if (!encrypt(record.data(), record.size())) return -1;
        } while (next_goes_with_it_);
        if (!send_unsent()) return -1;
    }
    more_follows_ = false;
    if (taken > 0 || bytes == 0) return static_cast<ssize_t>(taken);
    errno = EAGAIN;
    return -1;
}

// False: the connection is lost, and errno has the cause. The socket may have taken less than everything.
bool TlsStream::send_unsent() {
    if (lost_by_ != 0) {
        errno = lost_by_;
        return false;
    }
    while (sent_ < out_.size()) {
        const ssize_t sent = ::send(descriptor_, out_.data() + sent_, out_.size() - sent_,
                                    MSG_NOSIGNAL | (more_follows_ ? MSG_MORE : 0));
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        if (sent < 0) return false;
        sent_ += static_cast<std::size_t>(sent);
    }
    out_.clear();
    sent_ = 0;
    return true;
}

std::string TlsStream::error_text() const {
    const int cause = errno;
    return cause == EPROTO && !failure_.empty() ? "TLS: " + failure_ : std::strerror(cause);
}

void TlsStream::shut_down_output() {
    if (stage_ == Stage::open) {
        ERR_clear_error();
        SSL_shutdown(ssl_.get());
        send_unsent();
        ERR_clear_error();
    }
    ::shutdown(descriptor_, SHUT_WR);
}

void TlsStream::apply(const SocketOptions& options) { apply_options(descriptor_, options); }

void TlsStream::limit_unsent() {
    if (unsent_limited_) return;
    unsent_limited_ = true;
    real::limit_unsent(descriptor_, stripe_unsent_bytes);
}

void TlsStream::close() {
    if (descriptor_ < 0) return;
    ssl_.reset();
    close_socket(descriptor_);
    descriptor_ = -1;
    out_ = {};
    gather_ = {};
    in_ = {};
}

}  // namespace pccl::real
