// A peer's session with the master: it dials, says hello, resumes after a loss, keeps votes open until they are answered, and
// knows whether this peer is outside of a run, on the way into one, or a member.
//
// It owns the link to the master, the secrets and counters of the membership, and the open votes. What the master's messages
// mean for the parts of a peer is the owner's matter. It does not know calls, operations or data links.
//
// Invariants: there is at most one link to the master. An answer is told once, by the index of its decision, however often it
// comes. While the master is away, time runs until Timeouts::master and nothing but its welcome stops it.
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
        // A message that is no part of the session itself. `bytes_most`: the largest that the master takes.
        virtual void master_message(const proto::MasterMessage& message, std::uint32_t bytes_most) = 0;
        virtual void answered(const proto::Answer& answer) = 0;
        // The link is down, the run is not lost; and it is up again after so long.
        virtual void master_away() = 0;
        virtual void master_back(Duration away) = 0;
        // The master may know nothing of the edges that it was told.
        virtual void declare_edges() = 0;
        // This peer is outside of the run, in the state `next`.
        virtual void membership_over(const std::string& reason, State next) = 0;

    protected:
        ~Owner() = default;
    };

    Session(Turn& turn, const PeerConfig& config, LinkTable& links, Identity& who, Owner& owner)
        : turn_(turn), config_(config), links_(links), who_(who), owner_(owner), secrets_(config.key, config.seed),
          addresses_(config.master, config.other_masters) {}

    // ---- membership
    State state() const override { return state_; }
    std::string lost_text() const override {
        return "this peer is no longer a member of the run (" + lost_reason_ + "); connect again";
    }
    bool in_run() const { return state_ == State::member || state_ == State::connecting; }
    // Connects under a new name: whatever the old one did is over.
    void begin();
    void admitted() { state_ = State::member; }
    // Says so to the master, if it can be reached.
    void say_goodbye();
    // In which state a peer is that gives up now.
    State state_outside() const { return state_ == State::connecting ? before_connect_ : State::lost; }
    // The links are closed. Nothing of the membership is left but its counters.
    void end(State next, const std::string& reason);

    // ---- the link
    bool is_link(LinkId id) const { return id == link_; }
    void opened();
    void message_arrived(const ControlArrived& event);
    void lost(LinkId id, const std::string& reason, bool by_remote);
    void refuse(const std::string& reason) { links_.drop(link_, reason); }

    // ---- what others tell the master
    void tell(proto::PeerMessage message) override;
    Serial cast(proto::Vote& vote) override;
    bool master_open() const override;
    void close_vote(Serial serial) { votes_.close(serial); }
    void close_end_votes(OpId id) { votes_.close_end_votes(id); }
    // Some compute was done: the machine works, whatever else waits.
    void computed() { computed_ = true; }
    void tell_edge(proto::EdgeReport report) override;

    // ---- time
    Instant next_dial() const { return next_dial_; }
    void dial();
    void beat(LinkId id);
    // How long a dial may take: shorter for an address at which the master may never have been, so that the address where it
    // was is tried often.
    Duration dial_longest() const;
    // The machine did not run for so long.
    void slept(Duration time);
    // The master was out of reach for too long: the membership is over, and the owner was told.
    bool gave_up();

    // ---- knowledge
    bool welcomed() const { return welcomed_; }
    std::uint32_t incarnation() const { return incarnation_; }
    std::uint32_t entries_max() const { return entries_max_; }      // of a shared state, that the master takes
    std::uint32_t key_bytes_max() const { return key_bytes_max_; }  // of a name in it
    const OpenVotes& votes() const { return votes_; }
    std::uint64_t seen() const { return seen_; }
    std::uint64_t links_lost() const { return links_lost_; }
    Instant lost_since() const { return lost_since_; }
    std::size_t former_tokens() const { return former_tokens_.size(); }
    // 0: there is no link.
    std::size_t link_stage() const;
    std::string explain() const;

private:
    bool link_open() const { return links_.is_open(link_); }
    bool is_newcomer() const { return state_ == State::connecting && !welcomed_; }  // that the master has not welcomed
    bool away_from_found() const { return lost_since_ != never && addresses_.away_from_found(); }
    void give_up(const std::string& reason);
    void give_up_connect();
    void on_welcome(const proto::Welcome& welcome);
    void on_refusal(const proto::Refusal& refusal);
    void on_answer(const proto::Answer& answer);
    void declare_again();

    Turn& turn_;
    const PeerConfig& config_;
    LinkTable& links_;
    Identity& who_;
    Owner& owner_;
    SecretSource secrets_;
    State state_ = State::fresh;
    State before_connect_ = State::fresh;
    std::string lost_reason_;
    std::uint64_t token_ = 0;
    std::deque<std::uint64_t> former_tokens_;  // replaced at resumes, latest first; at most Limits::former_tokens_max
    std::uint32_t incarnation_ = 0;
    std::uint64_t dials_ = 0;       // the master knows the latest link of a peer by it
    std::uint64_t seen_ = 0;        // index of the last decision that this peer was told
    std::uint64_t seen_chain_ = 0;  // chain of that decision
    OpenVotes votes_;

    LinkId link_ = 0;
    std::uint64_t heard_ = 0;  // messages that have come over it
    bool computed_ = false;    // something, since the last heartbeat to it
    MasterAddresses addresses_;
    bool welcomed_ = false;  // by this run, since connect
    Instant lost_since_ = never;
    Instant next_dial_ = never;
    Duration backoff_ = 0;
    std::uint32_t entries_max_ = 0;
    std::uint32_t key_bytes_max_ = 0;
    std::uint64_t links_lost_ = 0;
};

}  // namespace pccl::core
