#include "net-real/tls/revocations.hpp"

#include "net-real/tls/certificates.hpp"
#include "net-real/tls/security_files.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

namespace pccl::real::tls {

namespace {

constexpr const char* head = "pccl-revoked 1";
constexpr std::size_t revoked_max = 65536;
constexpr std::size_t shown_max = 16384;
constexpr std::string_view by_serial = "serial:";

// As the set has it; empty: it names nothing.
std::string normal(const std::string& what) {
    if (!what.starts_with(by_serial)) return is_name(what) ? what : "";
    std::string digits;
    for (const char digit : what.substr(by_serial.size())) {
        if (digit == ':') continue;  // as openssl prints them
        if (std::isxdigit(static_cast<unsigned char>(digit)) == 0) return "";
        if (digits.empty() && digit == '0') continue;
        digits += static_cast<char>(std::tolower(static_cast<unsigned char>(digit)));
    }
    return digits.empty() || digits.size() > 2 * CertificateName::serial_bytes_max ? ""
                                                                                   : std::string(by_serial) + digits;
}

}  // namespace

std::unique_ptr<Revocations> Revocations::open(const std::string& directory, std::string& error) {
    const std::string folder = directory + "/security";
    if (!make_folder(folder, error)) return nullptr;
    std::unique_ptr<Revocations> made(new Revocations(folder + "/revoked"));
    if (!file_exists(made->path_)) return made;
    std::string text, line;
    if (!read_file(made->path_, text, error)) return nullptr;
    std::istringstream lines(text);
    bool complete = false;
    bool good = std::getline(lines, line) && line == head;
    while (good && std::getline(lines, line)) {
        good = !complete && (line == "end" || normal(line) == line);
        complete = line == "end";
        if (!complete) made->revoked_.insert(line);
    }
    if (good && complete) return made;
    error = made->path_ + " is damaged; restore it from a copy, or remove it: then nothing is revoked";
    return nullptr;
}

bool Revocations::is_revoked(const CertificateName& name) const {
    return revoked_.contains(name.name) || revoked_.contains(std::string(by_serial) + name.serial);
}

bool Revocations::admits(const CertificateName& name, std::string& why) {
    const std::lock_guard lock(mutex_);
    if (is_revoked(name)) {
        why = "certificate revoked by the operator: ask for a certificate with another name and serial number";
        return false;
    }
    if (name.peer.is_nil()) return true;
    if (shown_.size() >= shown_max && !shown_.contains(name.peer)) shown_.erase(shown_.begin());
    shown_[name.peer] = name;
    return true;
}

bool Revocations::revoke(const std::string& what, std::vector<core::Uuid>& peers, std::string& error) {
    const std::string entry = normal(what);
    if (entry.empty()) {
        error = "give the common name of a certificate, or serial: and its serial number in hexadecimal digits";
        return false;
    }
    const std::lock_guard disk_lock(disk_mutex_);
    std::set<std::string> next;
    {
        const std::lock_guard lock(mutex_);
        next = revoked_;
    }
    next.insert(entry);
    if (next.size() > revoked_max) {
        error = "too many revocations; let an authority of PCCL_TLS_CA issue new certificates";
        return false;
    }
    std::string text = std::string(head) + "\n";
    for (const std::string& one : next) text += one + "\n";
    if (!write_file(path_, text + "end\n", error)) return false;
    const std::lock_guard lock(mutex_);
    revoked_ = std::move(next);
    peers.clear();
    for (const auto& [peer, name] : shown_) {
        if (is_revoked(name)) peers.push_back(peer);
    }
    std::erase_if(shown_, [this](const auto& one) { return is_revoked(one.second); });
    return true;
}

std::optional<CertificateName> Revocations::shown_by(const core::Uuid& peer) const {
    const std::lock_guard lock(mutex_);
    const auto found = shown_.find(peer);
    return found == shown_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace pccl::real::tls
