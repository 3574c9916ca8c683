// The authority of a secure run: its key, the invitations, the certificates that it issued, and the revocations. It lives
// in `DIRECTORY/security` beside the master's journal, and survives the master.
//
// Thread-safe. Functions that change something return when the disk has it, so they must not run on an I/O thread;
// admits() and context() never wait for the disk. Secrets of invitations are kept as SHA-256 hashes. All tables are
// bounded; what has expired is dropped.
#pragma once

#include "core/base/ids.hpp"
#include "core/wire/enrolment.pb.h"
#include "net-real/tls/context.hpp"
#include "net-real/tls/invitation.hpp"

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pccl::real::tls {

class Authority {
public:
    struct Options {
        bool data_plaintext = false;
        std::time_t certificate_life = 12 * 3600;  // seconds; of peers and of the master
        std::function<std::time_t()> clock;        // empty: the system's
        // Gets what the operator must mend, which callers of enrol() do not learn. Called by the thread that enrols.
        std::function<void(const std::string&)> log_error = {};
    };
    // Loads the authority of the directory, or makes one. Null: `error` names cause and remedy. The caller holds the lock
    // of the directory.
    static std::unique_ptr<Authority> open(const std::string& directory, const Options& options, std::string& error);
    // Whether a run in this directory is secure.
    static bool exists(const std::string& directory);
    ~Authority();
    Authority(const Authority&) = delete;
    Authority& operator=(const Authority&) = delete;

    bool data_plaintext() const;
    KeyHash hash() const;
    // With a certificate of the master that is valid for at least half its life, also after the clock was set back.
    std::shared_ptr<const Context> context();

    // Answers a request for a certificate. `shown`: the certificate with which the caller has authenticated itself.
    proto::EnrolReply enrol(const proto::EnrolRequest& request, const std::optional<CertificateName>& shown);
    bool admits(const CertificateName& name, std::string& why) const;

    enum class State : std::uint8_t { open, spent, expired, withdrawn, revoked };
    struct Listed {
        std::string id;
        std::string name;
        State state = State::open;
        std::uint32_t uses = 0, used = 0;
        std::time_t expires = 0;
        std::optional<core::GroupId> group;
    };
    struct Wish {
        std::string name;  // empty: one is made
        std::time_t ttl = 3600;
        std::uint32_t uses = 1;
        std::optional<core::GroupId> group;
        std::string address;  // of the master, for the newcomer
    };
    bool invite(const Wish& wish, std::string& text, std::string& error);
    bool withdraw(const std::string& id, std::string& error);
    // `name`: of one peer, or of an invitation with all its peers. `peers`: those that must be removed from the run.
    bool revoke(const std::string& name, std::vector<core::Uuid>& peers, std::string& error);
    std::vector<Listed> invitations() const;
    std::optional<std::string> name_of_peer(const core::Uuid& peer) const;

private:
    struct Tables;
    struct Impl;
    explicit Authority(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

const char* to_text(Authority::State state);

}  // namespace pccl::real::tls
