#include "net-real/tls/operator_keys.hpp"

#include <algorithm>

#include <openssl/rand.h>
#include <sys/stat.h>

namespace pccl::real::tls {

std::unique_ptr<OperatorKeys> OperatorKeys::open(Context::Side side, const OperatorFiles& files, std::string& error) {
    if (files.authorities.empty() || files.certificate.empty() || files.key.empty()) {
        error = "give all of PCCL_TLS_CA, PCCL_TLS_CERT and PCCL_TLS_KEY, or none of them";
        return nullptr;
    }
    std::unique_ptr<OperatorKeys> made(new OperatorKeys(side, files));
    made->read_at_ = made->times();
    made->context_ = Context::make_from_files(side, files, {}, error);
    return made->context_ == nullptr ? nullptr : std::move(made);
}

OperatorKeys::Times OperatorKeys::times() const {
    Times found{};
    const std::string* const paths[] = {&files_.authorities, &files_.certificate, &files_.key};
    for (std::size_t i = 0; i < found.size(); ++i) {
        struct stat info {};
        if (::stat(paths[i]->c_str(), &info) == 0) found[i] = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
    }
    return found;
}

std::shared_ptr<const Context> OperatorKeys::context() const {
    const std::lock_guard lock(mutex_);
    return context_;
}

core::Uuid OperatorKeys::begin_membership(std::string& error) {
    const Times now = times();
    const auto plain = Context::make_from_files(side_, files_, {}, error);
    if (plain == nullptr) return {};
    core::Uuid peer;
    constexpr std::size_t drawn = sizeof peer.bytes - CertificateName::key_bytes;
    std::copy_n(plain->own_key().begin(), CertificateName::key_bytes, peer.bytes.begin() + drawn);
    if (RAND_bytes(peer.bytes.data(), static_cast<int>(drawn)) != 1) {
        error = "no random numbers: " + take_error();
        return {};
    }
    auto made = Context::make_from_files(side_, files_, peer, error);
    if (made == nullptr) return {};
    if (made->own_key() != plain->own_key()) {
        error = files_.certificate + " was replaced while it was read; try again";
        return {};
    }
    const std::lock_guard lock(mutex_);
    context_ = std::move(made);
    peer_ = peer;
    read_at_ = now;
    return peer;
}

bool OperatorKeys::refresh(std::string& error) {
    error.clear();
    const Times now = times();
    core::Uuid peer;
    {
        const std::lock_guard lock(mutex_);
        if (now == read_at_) return false;
        read_at_ = now;  // files that cannot be used are named once
        peer = peer_;
    }
    auto made = Context::make_from_files(side_, files_, peer, error);
    if (made == nullptr) return false;
    const std::lock_guard lock(mutex_);
    if (peer_ != peer) return false;  // a membership has begun meanwhile, with the files as they were then
    if (!peer_.is_nil() && made->own_key() != context_->own_key()) {
        error = files_.certificate + " has another key now; it is used when this peer joins the next time";
        return false;
    }
    context_ = std::move(made);
    return true;
}

}  // namespace pccl::real::tls
