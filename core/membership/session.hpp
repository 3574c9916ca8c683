// A peer's session with the master. It dials the master, sends the hello, resumes after a loss, and keeps votes open
// until they are answered. Its state tells whether this peer is outside of a run, connecting, or a member.
//
// The session owns the link to the master, the secrets and counters of the membership, and the open votes. The owner
// handles what the master's messages mean for the other parts of the peer. Calls, operations and data links are unknown
// to the session.
//
// Invariants: there is at most one link to the master. An answer is passed on once, however often it comes: the index
// of its decision has to be a higher one. While the master is away, time runs until Timeouts::master, and only the
// master's welcome stops it.
#pragma once

#include "core/base/secret.hpp"
#include "core/links/link_table.hpp"
#include "core/links/master_line.hpp"
#include "core/membership/master_addresses.hpp"
#include "core/peer_machine.hpp"
#include "core/voting/open_votes.hpp"

#include <cstdint>
#include <deque>
#include <string>

namespace pccl::core {

class Session final : public MasterLine {
public:
    class Owner {
    public:
        virtual void welcomed(const proto::Welcome& welcome, const Secret& link_key) = 0;
        // A message that is not for the session. `bytes_most`: the largest control frame that the master accepts.
        virtual void master_message(const proto::MasterMessage& message, std::uint32_t bytes_most) = 0;
        virtual void answered(const proto::Answer& answer) = 0;
        // master_away: the link is down, but the run is not lost. master_back: it is up again, after `away`.
        virtual void master_away() = 0;
        virtual void master_back(Duration away) = 0;
        // Reports all edges again: the master may have lost the earlier reports.
        virtual void declare_edges() = 0;
        // This peer is outside of the run now, in the state `next`.
        virtual void membership_over(const Cause& cause, State next) = 0;

    protected:
        ~Owner() = default;
    };

    Session(Turn& turn, const PeerConfig& config, LinkTable& links, Identity& who, Owner& owner)
        : turn_(turn), config_(config), links_(links), who_(who), owner_(owner), secrets_(config.key, config.seed),
          addresses_(config.master, config.other_masters) {}

    // ---- membership
    State state() const override { return state_; }
    Cause lost_cause() const override { return make_cause<CauseKind::no_longer_a_member>(lost_); }
    bool in_run() const { return state_ == State::member || state_ == State::connecting; }
    // Connects under a new name. The memberships under old names are over.
    // `identity`: the name of this peer; nil: draws one.
    void begin(const Uuid& identity);
    void admitted() { state_ = State::member; }
    // Sends the leave message to the master, if the link is open.
    void say_goodbye();
    // The state that this peer will have if it gives up now.
    State state_outside() const { return state_ == State::connecting ? before_connect_ : State::lost; }
    // The owner closes the links. The session drops everything of the membership except its counters.
    void end(State next, const Cause& cause);

    // ---- the link
    bool is_link(LinkId id) const { return id == link_; }
    // `local`: this end's address, see LinkOpened.
    void opened(const Endpoint& local, Duration round_trip);
    void message_arrived(const ControlArrived& event);
    void lost(LinkId id, const std::string& reason, bool by_remote);
    void refuse(const std::string& reason) { links_.drop(link_, reason); }

    // ---- what others tell the master
    void tell(proto::PeerMessage message) override;
    Serial cast(proto::Vote& vote) override;
    bool master_open() const override;
    void close_vote(Serial serial) { votes_.close(serial); }
    void close_end_votes(OpId id) { votes_.close_end_votes(id); }
    // A compute was done, or a collective over direct edges moved. The next heartbeat reports that this machine works,
    // even if its application cannot make a call yet.
    void computed() { computed_ = true; }
    void tell_edge(proto::EdgeReport report) override;

    // ---- time
    Instant next_dial() const { return next_dial_; }
    void dial();
    void beat(LinkId id);
    // Time-out of a dial. It is shorter for an address at which the master may never have been, so that the address
    // where it was is dialled often.
    Duration dial_longest() const;
    // This machine did not run for `time`.
    void slept(Duration time);
    // True if the master was out of reach for too long. The membership is over then, and the owner was called.
    bool gave_up();

    // ---- knowledge
    bool welcomed() const { return welcomed_; }
    std::uint32_t incarnation() const { return incarnation_; }
    std::uint32_t entries_max() const { return entries_max_; }      // entries of a shared state that the master accepts
    std::uint32_t key_bytes_max() const { return key_bytes_max_; }  // longest name of an entry that it accepts
    Duration round_trip() const override { return round_trip_; }
    std::uint32_t vote_input_bytes_max() const override { return vote_input_bytes_max_; }
    std::uint32_t answer_room() const override { return answer_room_; }
    const OpenVotes& votes() const { return votes_; }
    std::uint64_t seen() const { return seen_; }
    std::uint64_t links_lost() const { return links_lost_; }
    Instant lost_since() const { return lost_since_; }
    std::size_t former_tokens() const { return former_tokens_.size(); }
    void check() const;
    // 0: there is no link.
    std::size_t link_stage() const;
    std::string explain() const;

private:
    bool link_open() const { return links_.is_open(link_); }
    bool is_newcomer() const { return state_ == State::connecting && !welcomed_; }  // not welcomed yet
    bool away_from_found() const { return lost_since_ != never && addresses_.away_from_found(); }
    void give_up(const Cause& cause);
    void give_up_connect();
    void on_welcome(const proto::Welcome& welcome);
    void on_refusal(const proto::Refusal& refusal);
    void on_answer(const proto::Answer& answer);
    void declare_again();
    void tell_if_translated(const proto::Welcome& welcome);

    Turn& turn_;
    const PeerConfig& config_;
    LinkTable& links_;
    Identity& who_;
    Owner& owner_;
    SecretSource secrets_;
    State state_ = State::fresh;
    State before_connect_ = State::fresh;
    Cause lost_;  // why the last membership was lost
    std::uint64_t token_ = 0;
    std::deque<std::uint64_t> former_tokens_;  // replaced at resumes, latest first; at most Limits::former_tokens_max
    std::uint32_t incarnation_ = 0;
    std::uint64_t dials_ = 0;       // sent as generation: the master keeps the link with the highest one
    std::uint64_t seen_ = 0;        // index of the last decision that this peer received
    std::uint64_t seen_chain_ = 0;  // chain of that decision
    OpenVotes votes_;

    LinkId link_ = 0;
    Endpoint local_;           // this end's address of it
    Duration round_trip_ = 0;  // see MasterLine
    std::uint64_t heard_ = 0;  // messages received on it
    bool computed_ = false;    // a compute was done since the last heartbeat to the master
    MasterAddresses addresses_;
    bool welcomed_ = false;  // by the master, since begin()
    Instant lost_since_ = never;
    Instant next_dial_ = never;
    Duration backoff_ = 0;
    std::uint32_t entries_max_ = 0;
    std::uint32_t key_bytes_max_ = 0;
    std::uint32_t vote_input_bytes_max_ = 0;
    std::uint32_t answer_room_ = 0;
    std::uint64_t links_lost_ = 0;
    Endpoint told_translated_;  // the address that the log has named
};

}  // namespace pccl::core
