// Key and certificate of this process from the operator's own PKI, in place of the run's authority and its invitations.
//
// Such a certificate names no peer. So a peer id ends with a hash of the certificate's public key, and its first bytes,
// which log lines show, are drawn anew for each membership. A peer names its id in its first message of TLS (as the
// server name), so that the machine at the other end gets the id with the link, as in a run with invitations. Nobody can
// name an id that ends with the hash of another key: 80 bits would have to be hit.
//
// Thread-safe. Everything but context() reads files, so it must not run on an I/O thread.
#pragma once

#include "core/base/ids.hpp"
#include "net-real/tls/context.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace pccl::real::tls {

class OperatorKeys {
public:
    // Null: `error` names the file, the cause and the remedy.
    static std::unique_ptr<OperatorKeys> open(Context::Side side, const OperatorFiles& files, std::string& error);

    // Of this process now.
    std::shared_ptr<const Context> context() const;
    // Reads the files, and draws a peer id that belongs to their key. From now on context() names it. Nil: see `error`.
    core::Uuid begin_membership(std::string& error);
    // Reads the files again if one has changed. False: there is nothing new, or `error` says why it cannot be used. A
    // peer keeps its id, so it cannot take another key; the next membership can.
    bool refresh(std::string& error);

private:
    using Times = std::array<std::int64_t, 3>;  // nanoseconds, of the last change
    OperatorKeys(Context::Side side, OperatorFiles files) : side_(side), files_(std::move(files)) {}
    Times times() const;

    const Context::Side side_;
    const OperatorFiles files_;
    mutable std::mutex mutex_;
    std::shared_ptr<const Context> context_;
    core::Uuid peer_;  // nil: no membership yet, or a master
    Times read_at_{};
};

}  // namespace pccl::real::tls
