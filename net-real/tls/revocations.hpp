// What the operator of a run with certificates of an own PKI has revoked: names and serial numbers of certificates. The
// file of the state directory has them before revoke() returns. Thread-safe.
//
// Also the names that peers of this master have shown, because such a certificate does not name a peer id.
#pragma once

#include "core/base/ids.hpp"
#include "net-real/tls/certificate_name.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace pccl::real::tls {

class Revocations {
public:
    // Of the folder `security` in a state directory that exists. Null: `error` says why.
    static std::unique_ptr<Revocations> open(const std::string& directory, std::string& error);

    // False: the certificate is revoked. Notes who showed it. Does not wait for the disk.
    bool admits(const CertificateName& name, std::string& why);
    // `what`: the common name of certificates, or "serial:" and hexadecimal digits. Waits for the disk. `peers`: the
    // ids that have shown one of them. False: nothing has changed.
    bool revoke(const std::string& what, std::vector<core::Uuid>& peers, std::string& error);
    // What a peer has shown to this master since it was started.
    std::optional<CertificateName> shown_by(const core::Uuid& peer) const;

private:
    explicit Revocations(std::string path) : path_(std::move(path)) {}
    bool is_revoked(const CertificateName& name) const;  // with mutex_ held

    const std::string path_;
    std::mutex disk_mutex_;  // held by the only one that changes revoked_
    mutable std::mutex mutex_;
    std::set<std::string> revoked_;
    std::map<core::Uuid, CertificateName> shown_;
};

}  // namespace pccl::real::tls
