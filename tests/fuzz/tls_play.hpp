// Plays a TLS handshake between two ends in this process, and changes what goes over the wire: bits, lengths, whole
// records, their order, and what comes before them. Behind the handshake it sends frames that are damaged too. The
// caller makes the choices: a seeded generator, or the bytes of a fuzzer. `Choices` has below(bound).
//
// Most plays have one end only: it meets what the other end said in an honest handshake, changed, and mostly in its
// first bytes. That costs a fraction, and reaches all that a stranger can reach, who has no key. Such an end must never open,
// not even if nothing is changed.
//
// Held in each play: an end opens only to the other end that is really there, with the protocol that was asked for.
// What arrives is the beginning of what was sent. Every failure has a reason. Nothing runs without end.
#pragma once

#include "core/base/random.hpp"
#include "core/wire/convert.hpp"
#include "core/wire/enrolment.pb.h"
#include "core/wire/frame.hpp"
#include "net-real/enrolment_request.hpp"
#include "net-real/link.hpp"
#include "net-real/streams/tls_stream.hpp"
#include "net-real/tests/temporary_folder.hpp"
#include "net-real/tests/tls_fixtures.hpp"
#include "net-real/tls/authority.hpp"
#include "net-real/tls/enrolment.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <sys/socket.h>

namespace tls_play {

using namespace pccl;
using namespace pccl::real;
using Context = std::shared_ptr<const tls::Context>;

inline void require(bool holds, const char* what) {
    if (!holds) throw std::logic_error(what);
}

// Who takes part. Made once: keys and certificates cost more than a play.
class World {
public:
    World() {
        std::string error, text;
        authority = tls::Authority::open(folder_.path(), {}, error);
        tls::Authority::Wish wish;
        wish.address = "127.0.0.1:1";
        if (authority == nullptr || !authority->invite(wish, text, error)) throw std::runtime_error(error);
        newcomer = tls::PeerIdentity::make(text, std::nullopt, error);
        if (newcomer == nullptr || !tls::parse_invitation(text, invitation, error)) throw std::runtime_error(error);
        request.set_invitation(invitation.id);
        request.set_secret(invitation.secret.data(), invitation.secret.size());
        request.set_request(newcomer->request(error));
        reply = authority->enrol(request, std::nullopt);
        if (reply.error() != proto::ENROL_OK) throw std::runtime_error(reply.text());
        // With the same key it would be granted again.
        const auto late = tls::PeerIdentity::make(text, std::nullopt, error);
        if (late == nullptr) throw std::runtime_error(error);
        request.set_request(late->request(error));
    }
    World(const World&) = delete;

    static Context without_certificate(const TlsRun& run) {
        std::string error;
        auto made = tls::Context::make_newcomer(run.hash(), std::nullopt, error);
        if (made == nullptr) throw std::runtime_error(error);
        return made;
    }

    TlsRun run, other_run;
    Context master = run.master(), first = run.peer(1), second = run.peer(2), stranger = without_certificate(run),
            foreign = other_run.peer(1), old = run.peer(3, 7200);
    std::unique_ptr<tls::Authority> authority;  // for requests; its invitation is spent
    std::unique_ptr<tls::PeerIdentity> newcomer;
    tls::Invitation invitation;
    proto::EnrolRequest request;
    proto::EnrolReply reply;
    tls::Sessions tickets;                // of the first peer
    // Both directions of honest handshakes, the last one of each kind: with the master, for an enrolment, with a peer.
    std::array<std::array<std::string, 2>, 3> recorded;

private:
    TemporaryFolder folder_;
};

struct Played {
    std::uint64_t opened_both = 0, opened_one = 0, refused = 0, waiting = 0;  // the handshakes
    std::uint64_t one_end = 0;                                            // plays with one end, which are refused
    std::uint64_t bytes_arrived = 0, frames_arrived = 0, frames_refused = 0;
};

template <class Choices>
class Play {
public:
    Play(World& world, Choices& choices) : world_(world), choices_(choices) {}

    Played run() {
        kind_ = choices_.below(world_.recorded.size());
        if (choices_.below(8) != 0 && !world_.recorded[kind_][out].empty()) {
            meet_a_recording();
            return played_;
        }
        choose_ends();
        choose_change();
        shake_hands();
        if (dialler_ == Opening::open || acceptor_ == Opening::open) check_ends();
        if (dialler_ == Opening::open && acceptor_ == Opening::open) {
            if (choices_.below(2) == 0)
                exchange_bytes();
            else
                enrol();
        }
        if (change_ == Change::none && fits_) {
            require(dialler_ == Opening::open && acceptor_ == Opening::open, "an undisturbed handshake failed");
            if (!meets_) world_.recorded[!to_master_ ? 2 : protocol_ == tls::Protocol::link ? 0 : 1] = history_;
        }
        return played_;
    }

private:
    using Opening = Stream::Opening;
    enum class Change : std::uint8_t { none, bits, noise, gap, end, record, before, replay, count };
    enum Direction { out = 0, back = 1 };  // of the dialler, of the acceptor

    struct Sockets {
        int inner = -1;  // of the stream, which closes it; -1: taken
        int outer = -1;  // of the wire
        Sockets() {
            int both[2];
            if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) != 0)
                throw std::runtime_error("no sockets");
            inner = both[0];
            outer = both[1];
        }
        ~Sockets() {
            ::close(outer);
            if (inner >= 0) ::close(inner);
        }
        Sockets(const Sockets&) = delete;
        int take() { return std::exchange(inner, -1); }
    };

    // ---- who
    void choose_ends() {
        struct Dialler {
            Context context;
            tls::Protocol protocol;
            std::optional<core::Uuid> peer;  // that its certificate names; nothing: it has none that is accepted
        };
        const Dialler diallers[] = {
            {world_.first, tls::Protocol::link, test_uuid(1)},
            {world_.first, tls::Protocol::enrolment, test_uuid(1)},
            {world_.stranger, tls::Protocol::enrolment, core::Uuid{}},
            {world_.stranger, tls::Protocol::link, {}},
            {world_.foreign, tls::Protocol::link, {}},
            {world_.old, tls::Protocol::link, {}}};
        // Those that may open are drawn more often: the others end early.
        constexpr std::size_t order[] = {0, 0, 0, 1, 2, 2, 3, 4, 5};
        const Dialler& dialler = diallers[order[choices_.below(std::size(order))]];
        to_master_ = choices_.below(2) == 0;
        meets_ = !to_master_ && dialler.protocol == tls::Protocol::link && choices_.below(4) == 0;
        protocol_ = dialler.protocol;
        named_ = dialler.peer;
        fits_ = dialler.peer.has_value() && (protocol_ == tls::Protocol::link || to_master_);
        const Context& acceptor = to_master_ ? world_.master : world_.second;
        using Meeting = TlsStream::Meeting;
        const bool leads = choices_.below(2) == 0;
        a_ = TlsStream::dialled(ends_[0].take(), dialler.context, protocol_,
                                !meets_ ? Meeting::never : leads ? Meeting::leads : Meeting::yields);
        b_ = meets_ ? TlsStream::dialled(ends_[1].take(), acceptor, protocol_, leads ? Meeting::yields : Meeting::leads)
                    : TlsStream::accepted(ends_[1].take(), acceptor);
        require(a_ != nullptr && b_ != nullptr, "no memory for a stream");
        if (fits_ && !to_master_ && !meets_ && choices_.below(2) == 0) a_->use_tickets(world_.tickets, test_uuid(2));
    }
    void choose_change() {
        change_ = static_cast<Change>(choices_.below(static_cast<std::size_t>(Change::count)));
        direction_ = choices_.below(2) == 0 ? out : back;
        // A handshake has about 300 to 1500 bytes in each direction.
        at_ = choices_.below(choices_.below(4) == 0 ? 64 : 2500);
        if (change_ == Change::before) deliver(direction_, foreign_bytes());
        if (change_ == Change::replay) deliver(direction_, world_.recorded[kind_][direction_]);
    }

    // ---- one end
    void meet_a_recording() {
        ++played_.one_end;
        // An acceptor hears the dialler of the recording; or the other way round.
        const bool accepts = choices_.below(4) != 0;
        direction_ = accepts ? out : back;
        TlsStream* end = nullptr;
        if (accepts) {
            b_ = TlsStream::accepted(ends_[1].take(), kind_ == 2 ? world_.second : world_.master);
            end = b_.get();
        } else {
            const bool enrols = kind_ == 1;
            a_ = TlsStream::dialled(ends_[0].take(), enrols ? world_.stranger : world_.first,
                                    enrols ? tls::Protocol::enrolment : tls::Protocol::link);
            end = a_.get();
        }
        require(end != nullptr, "no memory for a stream");
        std::string bytes = world_.recorded[kind_][direction_];
        change_ = static_cast<Change>(choices_.below(static_cast<std::size_t>(Change::count)));
        if (change_ == Change::end)
            bytes.resize(choices_.below(bytes.size()));
        else if (change_ == Change::before)
            bytes.insert(0, foreign_bytes());
        else
            change(bytes, choices_.below(choices_.below(3) == 0 ? bytes.size() : std::min(bytes.size(), first_bytes)));
        Opening state = Opening::waiting;
        std::string reason;
        // In one piece, or in two.
        const std::size_t cut = choices_.below(4) == 0 ? choices_.below(bytes.size() + 1) : bytes.size();
        const std::string_view all = bytes;
        for (const std::string_view piece : {all.substr(0, cut), all.substr(cut)}) {
            put(ends_[accepts ? 1 : 0].outer, piece);
            step(*end, state, reason);
        }
        ::shutdown(ends_[accepts ? 1 : 0].outer, SHUT_WR);
        for (int turn = 0; turn < 4 && state == Opening::waiting; ++turn) step(*end, state, reason);
        require(state == Opening::failed, "an end opened to a recording, or did not see its end");
        require(!reason.empty(), "a failure without a reason");
        ++played_.refused;
    }
    std::string noise(std::size_t bytes) {
        std::string made(bytes, '\0');
        for (char& byte : made) byte = static_cast<char>(choices_.below(256));
        return made;
    }
    std::string foreign_bytes() {
        std::string made;
        switch (choices_.below(6)) {
        case 0: return "GET / HTTP/1.1\r\nHost: master\r\n\r\n";
        case 1: {  // of this library, in the clear
            const std::string body = noise(choices_.below(200));
            core::wire::append_control(made, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()});
            return made;
        }
        case 2: return std::string("\x16\x03\x01", 3) + noise(choices_.below(600));
        case 3: return std::string("\x14\x03\x03\x00\x01\x01", 6);  // ChangeCipherSpec, which is skipped
        case 4: return std::string("\x15\x03\x03\x00\x02\x02\x28", 7);  // an alert
        default: return noise(1 + choices_.below(300));
        }
    }

    // ---- the wire
    static void put(int socket, std::string_view bytes) {
        // A full socket takes less: the rest is lost, which is one more change.
        if (!bytes.empty()) static_cast<void>(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL));
    }
    void deliver(Direction direction, const std::string& bytes) { put(ends_[direction == out ? 1 : 0].outer, bytes); }

    // Moves what has been sent. True: something was there.
    bool carry(Direction direction) {
        char piece[16384];
        const ssize_t got = ::recv(ends_[direction == out ? 0 : 1].outer, piece, sizeof piece, 0);
        if (got <= 0) {
            if (got == 0 && !ended_[direction]) {
                ended_[direction] = true;
                ::shutdown(ends_[direction == out ? 1 : 0].outer, SHUT_WR);
                return true;
            }
            return false;
        }
        std::string bytes(piece, static_cast<std::size_t>(got));
        const std::size_t from = history_[direction].size();
        history_[direction] += bytes;
        if (direction == direction_ && at_ >= from && at_ < from + bytes.size()) change(bytes, at_ - from);
        if (!ended_[direction]) deliver(direction, bytes);
        return true;
    }
    void change(std::string& bytes, std::size_t at) {
        switch (change_) {
        case Change::bits:
            for (std::size_t i = 1 + choices_.below(4); i > 0; --i) {
                const std::size_t place = std::min(bytes.size() - 1, at + choices_.below(40));
                bytes[place] = static_cast<char>(bytes[place] ^ (1 << choices_.below(8)));
            }
            return;
        case Change::noise: bytes.insert(at, noise(1 + choices_.below(40))); return;
        case Change::gap: bytes.erase(at, 1 + choices_.below(200)); return;
        case Change::end:
            bytes.resize(at);
            deliver(direction_, bytes);
            ended_[direction_] = true;
            ::shutdown(ends_[direction_ == out ? 1 : 0].outer, SHUT_WR);
            return;
        case Change::record: bytes = change_records(bytes); return;
        default: return;
        }
    }
    std::string change_records(const std::string& bytes) {
        constexpr std::size_t head = 5;
        std::vector<std::string> records;
        for (std::size_t at = 0; at < bytes.size();) {
            const auto byte = [&](std::size_t index) { return static_cast<std::uint8_t>(bytes[at + index]); };
            const std::size_t length = at + head > bytes.size()
                                           ? bytes.size() - at
                                           : head + (static_cast<std::size_t>(byte(3)) << 8 | byte(4));
            records.push_back(bytes.substr(at, length));
            at += length;
        }
        const std::size_t one = choices_.below(records.size()), two = choices_.below(records.size());
        switch (choices_.below(5)) {
        case 0: std::swap(records[one], records[two]); break;
        case 1: records.insert(records.begin() + static_cast<std::ptrdiff_t>(one), records[two]); break;
        case 2: records.erase(records.begin() + static_cast<std::ptrdiff_t>(one)); break;
        case 3: records[one][0] = static_cast<char>(20 + choices_.below(6)); break;
        default: {  // in two records
            std::string& whole = records[one];
            if (whole.size() < head + 2) break;
            const std::size_t cut = 1 + choices_.below(whole.size() - head - 1);
            const auto record = [&](std::string_view content) {
                std::string made = whole.substr(0, 3);
                made.push_back(static_cast<char>(content.size() >> 8));
                made.push_back(static_cast<char>(content.size()));
                return made.append(content);
            };
            const std::string content = whole.substr(head);
            whole = record(std::string_view(content).substr(0, cut)) + record(std::string_view(content).substr(cut));
        }
        }
        std::string all;
        for (const std::string& record : records) all += record;
        return all;
    }

    // ---- the handshake
    void shake_hands() {
        std::string reason_a, reason_b;
        int idle = 0;
        for (int turn = 0; turn < turns_max && idle < 2; ++turn) {
            step(*a_, dialler_, reason_a);
            step(*b_, acceptor_, reason_b);
            const bool moved_out = carry(out), moved_back = carry(back);
            idle = moved_out || moved_back ? 0 : idle + 1;
            if (dialler_ != Opening::waiting && acceptor_ != Opening::waiting) break;
            require(turn + 1 < turns_max, "a handshake does not end");
        }
        require((dialler_ == Opening::failed) == !reason_a.empty() &&
                    (acceptor_ == Opening::failed) == !reason_b.empty(),
                "a failure without a reason, or a reason without a failure");
        const int open = (dialler_ == Opening::open ? 1 : 0) + (acceptor_ == Opening::open ? 1 : 0);
        if (open == 2)
            ++played_.opened_both;
        else if (open == 1)
            ++played_.opened_one;
        else if (dialler_ == Opening::failed || acceptor_ == Opening::failed)
            ++played_.refused;
        else
            ++played_.waiting;
    }
    static void step(TlsStream& stream, Opening& state, std::string& reason) {
        if (state != Opening::waiting) return;
        state = stream.open(reason);
        if (state == Opening::failed) stream.close();
    }
    void check_ends() {
        if (dialler_ == Opening::open) {
            const auto found = a_->other_end();
            require(found && found->is_master == to_master_ && (to_master_ || found->peer == test_uuid(2)),
                    "the dialler opened to somebody else");
            require(a_->protocol() == protocol_, "the dialler opened with another protocol");
        }
        if (acceptor_ != Opening::open) return;
        require(fits_, "the acceptor opened to an end that it must refuse");
        require(b_->protocol() == protocol_, "the acceptor opened with another protocol");
        const auto found = b_->other_end();
        require(named_->is_nil() ? !found.has_value() : found && !found->is_master && found->peer == *named_,
                "the acceptor opened to somebody else");
    }

    // ---- behind the handshake
    void exchange_bytes() {
        const std::string sent = noise(64) + std::string(choices_.below(40'000), 'm');
        std::string received;
        std::vector<std::uint8_t> memory(50'000);
        std::size_t taken = 0;
        for (int turn = 0, idle = 0; turn < turns_max && idle < 2; ++turn) {
            if (taken < sent.size()) {
                const iovec part{const_cast<char*>(sent.data()) + taken, sent.size() - taken};
                const ssize_t done = a_->send({&part, 1}, false);
                if (done > 0) taken += static_cast<std::size_t>(done);
            }
            a_->send_unsent();
            const bool moved = carry(out);
            const iovec part{memory.data(), memory.size()};
            const ssize_t got = b_->receive({&part, 1});
            if (got > 0) received.append(memory.begin(), memory.begin() + got);
            if (got == 0 || (got < 0 && errno != EAGAIN)) break;
            idle = moved || got > 0 ? 0 : idle + 1;
        }
        // The acceptor has sent a ticket at most.
        carry(back);
        const iovec part{memory.data(), memory.size()};
        require(a_->receive({&part, 1}) <= 0, "bytes arrived that nobody has sent");
        require(received == std::string_view(sent).substr(0, received.size()), "a wrong byte arrived");
        if (change_ == Change::none) require(received == sent, "bytes are missing, though nothing was changed");
        played_.bytes_arrived += received.size();
    }
    // A request, and the answer to it, both damaged before they are encrypted.
    void enrol() {
        const std::optional<std::string> arrived =
            send_frame(*a_, *b_, out, damaged(core::encode(world_.request)));
        if (arrived) {
            proto::EnrolRequest read;
            std::string error;
            if (core::decode({reinterpret_cast<const std::uint8_t*>(arrived->data()), arrived->size()}, read)) {
                static_cast<void>(tls::key_of_request(read.request(), error));
                const proto::EnrolReply answer = world_.authority->enrol(read, std::nullopt);
                require(answer.error() != proto::ENROL_OK && !answer.text().empty(),
                        "a spent invitation gave a certificate, or a refusal has no reason");
            }
        }
        const std::optional<std::string> answer = send_frame(*b_, *a_, back, damaged(core::encode(world_.reply)));
        if (!answer) return;
        proto::EnrolReply reply;
        std::string error;
        if (reply.ParseFromString(*answer) && !world_.newcomer->take(reply, error))
            require(!error.empty(), "an answer was refused without a reason");
    }
    std::string damaged(std::string bytes) {
        for (std::size_t i = choices_.below(4); i > 0; --i)
            bytes[choices_.below(bytes.size())] ^= static_cast<char>(1 << choices_.below(8));
        if (choices_.below(8) == 0) bytes.resize(choices_.below(bytes.size()));
        return bytes;
    }
    // Nothing: it did not arrive, or was refused.
    std::optional<std::string> send_frame(TlsStream& from, TlsStream& to, Direction direction,
                                          const std::string& body) {
        std::string frame;
        core::wire::append_control(frame, {reinterpret_cast<const std::uint8_t*>(body.data()), body.size()});
        if (choices_.below(2) == 0)
            frame[choices_.below(std::min<std::size_t>(frame.size(), 40))] ^= static_cast<char>(1 << choices_.below(8));
        if (choices_.below(8) == 0) frame.insert(0, noise(1 + choices_.below(60)));
        Link link(2, to, core::Limits{});
        EnrolmentRequest sink(link);
        std::size_t taken = 0;
        for (int turn = 0, idle = 0; turn < turns_max && idle < 2 && !sink.has_come; ++turn) {
            if (taken < frame.size()) {
                const iovec part{frame.data() + taken, frame.size() - taken};
                const ssize_t done = from.send({&part, 1}, false);
                if (done > 0) taken += static_cast<std::size_t>(done);
            }
            from.send_unsent();
            const bool moved = carry(direction);
            if (link.receive(space(), sink, EnrolmentRequest::bytes_max).progress == Link::Progress::closed) break;
            idle = moved ? 0 : idle + 1;
        }
        ++(sink.has_come && !sink.is_refused ? played_.frames_arrived : played_.frames_refused);
        return sink.has_come && !sink.is_refused ? std::optional(sink.body) : std::nullopt;
    }
    static ReceiveSpace& space() {
        static ReceiveSpace one;
        return one;
    }

    static constexpr int turns_max = 400;
    static constexpr std::size_t first_bytes = 64;
    World& world_;
    Choices& choices_;
    Sockets ends_[2];
    std::unique_ptr<TlsStream> a_, b_;
    tls::Protocol protocol_ = tls::Protocol::none;
    std::optional<core::Uuid> named_;
    bool to_master_ = false, meets_ = false, fits_ = false;
    std::size_t kind_ = 0;  // of the recording
    Change change_ = Change::none;
    Direction direction_ = out;
    std::size_t at_ = 0;  // the first byte of the direction that is changed
    std::array<std::string, 2> history_;
    std::array<bool, 2> ended_{};
    Opening dialler_ = Opening::waiting, acceptor_ = Opening::waiting;
    Played played_;
};

}  // namespace tls_play
