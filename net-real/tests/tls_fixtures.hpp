// A secure run in memory: its authority, and contexts of its master and its peers.
#pragma once

#include "net-real/streams/tls_stream.hpp"
#include "net-real/tls/context.hpp"

#include <ctime>
#include <memory>
#include <stdexcept>
#include <string>

namespace pccl::real {

inline core::Uuid test_uuid(std::uint8_t number) {
    core::Uuid uuid;
    uuid.bytes[0] = 0xA0;
    uuid.bytes[15] = number;
    return uuid;
}

class TlsRun {
public:
    TlsRun() {
        std::string error;
        key_ = tls::make_key(error);
        require(key_ != nullptr, error);
        authority_ = tls::make_authority(*key_, std::time(nullptr), error);
        require(authority_ != nullptr, error);
    }
    // `age`: seconds since its lifetime of one hour began.
    tls::Credentials credentials(const tls::CertificateName& name, std::time_t age = 0) const {
        std::string error;
        tls::Credentials made;
        made.key = tls::make_key(error);
        const std::time_t from = std::time(nullptr) - age;
        made.certificate =
            tls::issue(*key_, *authority_, *made.key, name, {from - tls::clock_tolerance, from + 3600}, error);
        require(made.certificate != nullptr, error);
        X509_up_ref(authority_.get());
        made.authority.reset(authority_.get());
        return made;
    }
    static tls::CertificateName peer_name(std::uint8_t number) {
        return {false, test_uuid(number), "peer-" + std::to_string(number), "0badcafe", {}};
    }
    std::shared_ptr<const tls::Context> peer(std::uint8_t number, std::time_t age = 0) const {
        return context(tls::Context::Side::peer, credentials(peer_name(number), age));
    }
    std::shared_ptr<const tls::Context> master(std::time_t age = 0) const {
        return context(tls::Context::Side::master, credentials({true, {}, "master", "", {}}, age));
    }
    tls::KeyHash hash() const { return *tls::hash_of_key(*authority_); }

private:
    static void require(bool holds, const std::string& error) {
        if (!holds) throw std::runtime_error(error);
    }
    static std::shared_ptr<const tls::Context> context(tls::Context::Side side, const tls::Credentials& credentials) {
        std::string error;
        auto made = tls::Context::make(side, credentials, error);
        require(made != nullptr, error);
        return made;
    }
    tls::KeyPtr key_;
    tls::CertificatePtr authority_;
};

}  // namespace pccl::real
