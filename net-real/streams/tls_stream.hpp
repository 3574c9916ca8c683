// A stream over a connected socket, encrypted by TLS 1.3, both ends authenticated by certificates.
//
// Records are full (16 KiB) where the caller gives enough at a time. Large pieces are encrypted from, and decrypted
// into, the caller's memory by way of one record of OpenSSL. Several records leave, or come, with one system call. Small
// pieces are copied together first. If the socket has no room for all of it, the rest is kept. send() therefore takes
// bytes that are not in the socket yet: see Stream::has_unsent().
//
// If both ends dial and meet (TCP's simultaneous open), each has sent the first message of a client. The end that
// yields then begins anew as a server, and the other end skips that message.
//
// An accepted stream looks at the first byte before it begins. If it is not one of TLS, the stream fails, and
// is_plaintext() tells so. go_plain() then makes it an ordinary stream, for an answer that such a caller understands.
#pragma once

#include "net-real/streams/stream.hpp"
#include "net-real/tls/context.hpp"
#include "net-real/tls/sessions.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pccl::real {

class TlsStream final : public Stream {
public:
    enum class Meeting : std::uint8_t { never, leads, yields };  // what this end does if it meets another dialler
    // Each owns the descriptor, which must be non-blocking, and closes it on failure (null: memory is short).
    static std::unique_ptr<TlsStream> dialled(int descriptor, std::shared_ptr<const tls::Context> context,
                                              tls::Protocol protocol, Meeting meeting = Meeting::never);
    static std::unique_ptr<TlsStream> accepted(int descriptor, std::shared_ptr<const tls::Context> context);
    // Before open(), of a stream that dials this peer: uses a ticket of an earlier connection if there is one, and keeps
    // those that come. `sessions` outlives the stream.
    void use_tickets(tls::Sessions& sessions, const core::Uuid& peer);
    // Before open(), of a stream that dials: the certificate of the other end must be for this host.
    bool expect_host(const std::string& host) { return tls::Context::expect_host(*ssl_, host); }
    ~TlsStream() override { close(); }
    TlsStream(const TlsStream&) = delete;
    TlsStream& operator=(const TlsStream&) = delete;

    int descriptor() const override { return descriptor_; }
    Opening open(std::string& reason) override;
    Wait opening_wait() override;
    ssize_t receive(std::span<const iovec> parts) override;
    ssize_t send(std::span<const iovec> parts, bool more) override;
    bool has_unsent() const override { return sent_ < out_.size(); }
    bool send_unsent() override;
    std::string error_text() const override;
    void shut_down_output() override;
    Wait input_wait() override { return drained_ ? Wait::readable : Wait::now; }
    Wait output_wait() override { return Wait::writable; }
    void apply(const SocketOptions& options) override;
    void limit_unsent() override;
    void close() override;

    // ---- when it is open
    tls::Protocol protocol() const { return tls::Context::protocol_of(*ssl_); }
    // Nothing: the other end showed no certificate (only for an enrolment), or one that names nobody.
    std::optional<tls::CertificateName> other_end() const;
    bool used_ticket() const { return SSL_session_reused(ssl_.get()) == 1; }
    bool is_from_files() const { return context_->is_from_files(); }
    // ---- after a failed opening
    bool is_plaintext() const { return is_plaintext_; }
    bool was_abandoned() const { return was_abandoned_; }  // the other end closed it, and gave no reason
    bool has_refused() const { return has_refused_; }      // this end did not accept what came, and has sent an alert
    void go_plain();

private:
    enum class Stage : std::uint8_t { connecting, expects_tls, handshake, open, plain };

    TlsStream(int descriptor, Stage stage, std::shared_ptr<const tls::Context> context)
        : descriptor_(descriptor), stage_(stage), context_(std::move(context)) {}
    static std::unique_ptr<TlsStream> make(int descriptor, Stage stage, std::shared_ptr<const tls::Context> context,
                                           tls::Protocol protocol);
    Opening look_at_first_byte(std::string& reason);
    bool set_ssl(bool dials, tls::Protocol protocol);
    bool is_in_time() const;
    // Looks whether the other end dialled too. False: nothing can be done before more has come.
    bool examine_meeting(std::string& reason);
    bool encrypt(const void* data, std::size_t bytes);
    std::span<const std::uint8_t> next_record(std::span<const iovec>& parts, std::size_t& offset);
    static void see_message(int is_sent, int, int type, const void*, std::size_t, SSL*, void* stream);
    static int take_output(BIO* bio, const char* data, int bytes);
    static int give_input(BIO* bio, char* target, int bytes);
    static const BIO_METHOD* socket_method();
    void read_further_ahead();

    int descriptor_;
    Stage stage_;
    Meeting meeting_ = Meeting::never;  // never: it cannot happen, or has been examined
    bool began_ = false;                // the first message of a client was sent
    std::size_t skipped_ = 0;           // what is left of the first message of the other end, which this one leads
    std::shared_ptr<const tls::Context> context_;
    tls::SslPtr ssl_;
    std::vector<std::uint8_t> out_;  // encrypted; the socket has taken the first sent_ bytes
    std::size_t sent_ = 0;
    bool sends_at_once_ = false;         // not while the handshake goes on: its messages leave together
    bool more_follows_ = false;          // another record is encrypted at once, or the caller gives more
    bool next_goes_with_it_ = false;     // the record waits in out_ for the next one
    int lost_by_ = 0;                    // why the socket takes no more
    std::vector<std::uint8_t> gather_;   // small pieces of one record
    std::vector<std::uint8_t> in_;       // read ahead: bytes in_begin_ to in_end_
    std::size_t in_begin_ = 0;
    std::size_t in_end_ = 0;
    tls::SessionPlace tickets_;
    std::uint64_t records_ = 0;         // encrypted with the present key
    std::uint64_t received_ = 0;        // bytes of data
    std::uint64_t messages_ = 0;        // of TLS itself, received behind the handshake
    bool drained_ = false;              // OpenSSL holds no whole record
    bool is_plaintext_ = false;
    bool was_abandoned_ = false;
    bool has_refused_ = false;
    bool unsent_limited_ = false;
    std::string failure_;  // of TLS; empty: errno has the cause
};

}  // namespace pccl::real
