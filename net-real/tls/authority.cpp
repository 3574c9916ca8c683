#include "net-real/tls/authority.hpp"

#include "core/base/format.hpp"
#include "core/wire/convert.hpp"
#include "net-real/tls/security_files.hpp"

#include <algorithm>
#include <charconv>
#include <deque>
#include <map>
#include <mutex>
#include <sstream>

#include <openssl/crypto.h>
#include <openssl/rand.h>

namespace pccl::real::tls {

namespace {

constexpr std::size_t invitations_max = 4096;
constexpr std::size_t peers_max = 16384;
constexpr std::size_t peers_of_a_name_max = 8;  // a peer gets a new id each time that it joins again
constexpr std::size_t granted_max = 4096;
// So long a use can be asked for again.
constexpr std::time_t granted_again = 10 * 60;
constexpr std::uint32_t uses_max = 65536;
constexpr std::time_t ttl_max = 30 * 86'400;
// Within clock_tolerance. A clock that is set back by more gives the master a new certificate.
constexpr std::time_t clock_step = 60;
// An expired or spent invitation is kept so long, so that whoever uses it gets the right answer.
constexpr std::time_t kept_after = 7 * 86'400;

std::string hash_of(std::string_view secret) {
    KeyHash hash{};
    EVP_Digest(secret.data(), secret.size(), hash.data(), nullptr, EVP_sha256(), nullptr);
    return to_hex(hash);
}

// Names a use: an invitation and the key that asks.
std::string use_of(const std::string& invitation, EVP_PKEY& key) {
    unsigned char* der = nullptr;
    const int bytes = i2d_PUBKEY(&key, &der);
    if (bytes <= 0) return {};
    std::string use = invitation + ' ';
    use.append(reinterpret_cast<const char*>(der), static_cast<std::size_t>(bytes));
    OPENSSL_free(der);
    return use;
}

bool same(const std::string& a, const std::string& b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

core::Uuid draw_uuid() {
    core::Uuid uuid;
    if (RAND_bytes(uuid.bytes.data(), static_cast<int>(uuid.bytes.size())) != 1) return {};
    uuid.bytes[6] = static_cast<std::uint8_t>((uuid.bytes[6] & 0x0F) | 0x40);  // RFC 4122, version 4
    uuid.bytes[8] = static_cast<std::uint8_t>((uuid.bytes[8] & 0x3F) | 0x80);
    return uuid;
}

struct Entry {
    std::string name;
    std::string secret_hash;
    std::time_t expires = 0;
    std::uint32_t uses = 1;
    std::uint32_t used = 0;
    std::optional<core::GroupId> group;
    enum class Mark : std::uint8_t { open, withdrawn, revoked } mark = Mark::open;
};

// A use that was granted.
struct Granted {
    std::string use;  // see use_of()
    CertificateName name;
    std::time_t until = 0;
};

struct Issued {
    std::string name;
    std::string invitation;
    std::time_t until = 0;
};

constexpr const char* mark_names[] = {"open", "withdrawn", "revoked"};

proto::EnrolReply refused(proto::EnrolError error, std::string text) {
    proto::EnrolReply reply;
    reply.set_error(error);
    reply.set_text(std::move(text));
    return reply;
}

}  // namespace

const char* to_text(Authority::State state) {
    static constexpr const char* names[] = {"open", "spent", "expired", "withdrawn", "revoked"};
    return names[static_cast<int>(state)];
}

// What the file holds. Copied for each change, so that memory changes only when the disk has it.
struct Authority::Tables {
    bool data_plaintext = false;
    std::map<std::string, Entry> invitations;    // by id
    std::map<core::Uuid, Issued> peers;          // with certificates that are valid
    std::map<std::string, std::time_t> revoked;  // names of peers, until when their certificates would be valid

    State state_of(const Entry& entry, std::time_t now) const {
        if (entry.mark == Entry::Mark::revoked) return State::revoked;
        if (entry.mark == Entry::Mark::withdrawn) return State::withdrawn;
        if (entry.used >= entry.uses) return State::spent;
        return now > entry.expires ? State::expired : State::open;
    }
    void drop_old(std::time_t now) {
        std::erase_if(peers, [&](const auto& peer) { return peer.second.until < now; });
        std::erase_if(revoked, [&](const auto& name) { return name.second < now; });
        std::erase_if(invitations, [&](const auto& entry) {
            return entry.second.expires + kept_after < now &&
                   std::none_of(peers.begin(), peers.end(),
                                [&](const auto& peer) { return peer.second.invitation == entry.first; });
        });
    }
    std::string to_file() const {
        std::string text = core::formatted("pccl-security 1\ndata {}\n", data_plaintext ? "plaintext" : "tls");
        for (const auto& [id, e] : invitations) {
            text +=
                core::formatted("invitation {} {} {} {} {} {} {} {}\n", id, e.name, e.secret_hash, e.expires, e.uses,
                                e.used, e.group ? std::to_string(*e.group) : "-", mark_names[static_cast<int>(e.mark)]);
        }
        for (const auto& [uuid, p] : peers)
            text += core::formatted("peer {} {} {} {}\n", to_hex(uuid.bytes), p.name, p.invitation, p.until);
        for (const auto& [name, until] : revoked) text += core::formatted("revoked {} {}\n", name, until);
        return text + "end\n";
    }
    bool from_file(const std::string& text) {
        std::istringstream lines(text);
        std::string line;
        bool complete = false;
        if (!std::getline(lines, line) || line != "pccl-security 1") return false;
        while (std::getline(lines, line)) {
            std::istringstream words(line);
            std::string kind, group, mark, id;
            words >> kind;
            if (complete) return false;
            if (kind == "data") {
                words >> mark;
                data_plaintext = mark == "plaintext";
            } else if (kind == "invitation") {
                Entry e;
                words >> id >> e.name >> e.secret_hash >> e.expires >> e.uses >> e.used >> group >> mark;
                if (group != "-") {
                    core::GroupId number = 0;
                    if (std::from_chars(group.data(), group.data() + group.size(), number).ec != std::errc{})
                        return false;
                    e.group = number;
                }
                const auto* found = std::find(std::begin(mark_names), std::end(mark_names), mark);
                if (!words || found == std::end(mark_names)) return false;
                e.mark = static_cast<Entry::Mark>(found - mark_names);
                invitations[id] = e;
            } else if (kind == "peer") {
                Issued p;
                core::Uuid uuid;
                words >> id >> p.name >> p.invitation >> p.until;
                if (!words || !read_hex(id, uuid.bytes)) return false;
                peers[uuid] = p;
            } else if (kind == "revoked") {
                std::time_t until = 0;
                words >> id >> until;
                if (!words) return false;
                revoked[id] = until;
            } else if (kind == "end") {
                complete = true;
            } else {
                return false;
            }
        }
        return complete;
    }
};

struct Authority::Impl {
    std::string folder;
    Options options;
    KeyPtr key;
    CertificatePtr certificate;

    std::mutex disk_mutex;           // held by the only one that changes the tables
    mutable std::mutex table_mutex;  // never held while the disk is awaited
    Tables tables;

    // Uses of invitations that were granted, newest last, by the invitation and the public key. A newcomer that did not
    // get the answer asks again with the same key: it gets its name and id again, and no further use is spent. With
    // disk_mutex held. A restarted master has forgotten them.
    std::deque<Granted> granted;

    std::mutex context_mutex;
    std::shared_ptr<const Context> context;
    std::time_t context_from = 0;  // when it was made
    std::time_t context_until = 0;

    std::time_t now() const { return options.clock ? options.clock() : std::time(nullptr); }
    Tables copy() const {
        const std::lock_guard lock(table_mutex);
        return tables;
    }
    // Whether the invitation is there and its secret is right. Without the secret nobody learns its state.
    bool knows(const proto::EnrolRequest& request) const {
        const std::string hash = hash_of(request.secret());
        const std::lock_guard lock(table_mutex);
        const auto found = tables.invitations.find(request.invitation());
        return found != tables.invitations.end() && same(found->second.secret_hash, hash);
    }
    // With disk_mutex held.
    bool store(Tables next, std::string& error) {
        next.drop_old(now());
        if (!write_file(folder + "/state", next.to_file(), error)) return false;
        const std::lock_guard lock(table_mutex);
        tables = std::move(next);
        return true;
    }
    std::shared_ptr<const Context> renew_context(std::string& error) {
        Credentials own;
        own.key = make_key(error);
        if (own.key == nullptr) return nullptr;
        CertificateName name;
        name.is_master = true;
        name.name = "master";
        const std::time_t at = now();
        own.certificate =
            issue(*key, *certificate, *own.key, name, {at - clock_tolerance, at + options.certificate_life}, error);
        X509_up_ref(certificate.get());
        own.authority.reset(certificate.get());
        if (own.certificate == nullptr) return nullptr;
        auto made = Context::make(Context::Side::master, own, error);
        if (made != nullptr) {
            context_from = at;
            context_until = at + options.certificate_life / 2;
        }
        return made;
    }
};

Authority::Authority(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Authority::~Authority() = default;

bool Authority::exists(const std::string& directory) { return file_exists(directory + "/security/authority.pem"); }

std::unique_ptr<Authority> Authority::open(const std::string& directory, const Options& options, std::string& error) {
    auto impl = std::make_unique<Impl>();
    impl->folder = directory + "/security";
    impl->options = options;
    const std::string key_path = impl->folder + "/authority.key", certificate_path = impl->folder + "/authority.pem";
    std::string key_text, certificate_text, state_text;
    if (!exists(directory)) {
        // The certificate is written last: without it nothing was issued, and a half-made authority is made anew.
        impl->key = make_key(error);
        if (impl->key == nullptr) return nullptr;
        impl->certificate = make_authority(*impl->key, impl->now(), error);
        if (impl->certificate == nullptr) return nullptr;
        impl->tables.data_plaintext = options.data_plaintext;
        if (!make_folder(impl->folder, error) || !write_file(key_path, to_pem(*impl->key), error) ||
            !impl->store(impl->tables, error) || !write_file(certificate_path, to_pem(*impl->certificate), error))
            return nullptr;
    } else {
        const std::string remedy =
            "; restore the folder from a copy, or remove it: then all peers need new invitations";
        if (!read_file(key_path, key_text, error) || !read_file(certificate_path, certificate_text, error) ||
            !read_file(impl->folder + "/state", state_text, error)) {
            error += remedy;
            return nullptr;
        }
        impl->key = key_from_pem(key_text, error);
        if (impl->key != nullptr) impl->certificate = certificate_from_pem(certificate_text, error);
        if (impl->certificate == nullptr || X509_check_private_key(impl->certificate.get(), impl->key.get()) != 1 ||
            !impl->tables.from_file(state_text)) {
            take_error();
            error = impl->folder + " is damaged: " + error + remedy;
            return nullptr;
        }
        if (impl->tables.data_plaintext != options.data_plaintext) {
            error = core::formatted("this run was started {} --data-plaintext; its members expect it so: give the same "
                                    "option",
                                    impl->tables.data_plaintext ? "with" : "without");
            return nullptr;
        }
    }
    impl->context = impl->renew_context(error);
    if (impl->context == nullptr) return nullptr;
    return std::unique_ptr<Authority>(new Authority(std::move(impl)));
}

bool Authority::data_plaintext() const { return impl_->options.data_plaintext; }

KeyHash Authority::hash() const { return hash_of_key(*impl_->certificate).value_or(KeyHash{}); }

std::shared_ptr<const Context> Authority::context() {
    const std::lock_guard lock(impl_->context_mutex);
    const std::time_t now = impl_->now();
    // If the clock was set back, the certificate is not valid by the new time, for as long as the clock was ahead.
    const bool is_ahead = impl_->context_from > now + clock_step;
    if (is_ahead || now >= impl_->context_until) {
        std::string error;
        if (auto made = impl_->renew_context(error)) impl_->context = std::move(made);
    }
    return impl_->context;
}

// ---- enrolment ---------------------------------------------------------------------------------------------------

proto::EnrolReply Authority::enrol(const proto::EnrolRequest& request, const std::optional<CertificateName>& shown) {
    const char* const unknown =
        "unknown invitation: this master has not made it, or forgot it a week after it expired; ask "
        "for a new one (pccl-master invite)";
    // Cheap, because strangers get this far.
    if (!shown && !impl_->knows(request)) return refused(proto::ENROL_UNKNOWN, unknown);
    std::string error;
    const KeyPtr key = key_of_request(request.request(), error);
    if (key == nullptr) return refused(proto::ENROL_OTHER, error);
    const std::lock_guard lock(impl_->disk_mutex);
    Tables next = impl_->copy();
    const std::time_t now = impl_->now();
    next.drop_old(now);
    CertificateName name;
    std::string granting;  // a use that is spent now
    if (shown) {
        if (std::string why; shown->is_master || !admits(*shown, why)) return refused(proto::ENROL_REVOKED, why);
        name = *shown;
        if (!request.same_peer()) name.peer = draw_uuid();
    } else {
        const auto found = next.invitations.find(request.invitation());
        if (found == next.invitations.end()) return refused(proto::ENROL_UNKNOWN, unknown);
        Entry& entry = found->second;
        const std::string use = use_of(request.invitation(), *key);
        const auto before = std::find_if(impl_->granted.begin(), impl_->granted.end(), [&](const Granted& other) {
            return other.use == use && other.until >= now;
        });
        const bool is_repeated = before != impl_->granted.end() && entry.mark != Entry::Mark::revoked &&
                                 !next.revoked.contains(before->name.name);
        if (is_repeated) name = before->name;
        switch (is_repeated ? State::open : next.state_of(entry, now)) {
        case State::open: break;
        case State::spent:
            return refused(
                proto::ENROL_SPENT,
                core::formatted("invitation spent: it was for {} peer(s), and all have used it; ask for a new "
                                "one (pccl-master invite, --uses for several peers)",
                                entry.uses));
        case State::expired:
            return refused(proto::ENROL_EXPIRED,
                           "invitation expired: ask for a new one (pccl-master invite, --ttl for a "
                           "longer time)");
        case State::withdrawn:
            return refused(proto::ENROL_WITHDRAWN, "invitation withdrawn by the operator: ask for a new one");
        case State::revoked:
            return refused(proto::ENROL_REVOKED, "invitation revoked by the operator: ask for a new one");
        }
        if (!is_repeated) {
            ++entry.used;
            name.name = entry.uses == 1 ? entry.name : core::formatted("{}#{}", entry.name, entry.used);
            name.invitation = found->first;
            name.group = entry.group;
            name.peer = draw_uuid();
            granting = use;
        }
    }
    if (name.peer.is_nil() || (!next.peers.contains(name.peer) && next.peers.size() >= peers_max))
        return refused(proto::ENROL_BUSY, "too many certificates are valid; try again later");
    const Lifetime life{now - clock_tolerance, now + impl_->options.certificate_life};
    next.peers[name.peer] = {name.name, name.invitation, life.until};
    // Ids that a peer had before. Its name still refuses their certificates after a revocation.
    std::vector<std::map<core::Uuid, Issued>::iterator> of_name;
    for (auto it = next.peers.begin(); it != next.peers.end(); ++it) {
        if (it->second.name == name.name && it->first != name.peer) of_name.push_back(it);
    }
    if (of_name.size() >= peers_of_a_name_max)
        next.peers.erase(*std::min_element(of_name.begin(), of_name.end(), [](const auto& a, const auto& b) {
            return a->second.until < b->second.until;
        }));
    const CertificatePtr certificate = issue(*impl_->key, *impl_->certificate, *key, name, life, error);
    if (certificate == nullptr) return refused(proto::ENROL_OTHER, error);
    if (!impl_->store(std::move(next), error)) {
        if (impl_->options.log_error)
            impl_->options.log_error("peers get no certificates, because none can be recorded: " + error);
        return refused(proto::ENROL_OTHER, "the master cannot write to its state directory");
    }
    if (!granting.empty()) {
        impl_->granted.push_back({std::move(granting), name, now + granted_again});
        if (impl_->granted.size() > granted_max) impl_->granted.pop_front();
    }
    proto::EnrolReply reply;
    reply.set_certificate(to_der(*certificate));
    reply.set_authority(to_der(*impl_->certificate));
    reply.set_data_plaintext(impl_->options.data_plaintext);
    return reply;
}

bool Authority::admits(const CertificateName& name, std::string& why) const {
    const std::lock_guard lock(impl_->table_mutex);
    const auto entry = impl_->tables.invitations.find(name.invitation);
    const bool invitation_revoked =
        entry != impl_->tables.invitations.end() && entry->second.mark == Entry::Mark::revoked;
    if (!invitation_revoked && !impl_->tables.revoked.contains(name.name)) return true;
    why = "certificate revoked by the operator: ask for a new invitation";
    return false;
}

// ---- the operator ------------------------------------------------------------------------------------------------

bool Authority::invite(const Wish& wish, std::string& text, std::string& error) {
    const std::lock_guard lock(impl_->disk_mutex);
    Tables next = impl_->copy();
    const std::time_t now = impl_->now();
    next.drop_old(now);
    Invitation made;
    std::array<std::uint8_t, 4> id{};
    if (RAND_bytes(id.data(), id.size()) != 1 ||
        RAND_bytes(made.secret.data(), static_cast<int>(made.secret.size())) != 1) {
        error = "no random numbers: " + take_error();
        return false;
    }
    made.id = to_hex(id);
    made.master = wish.address;
    made.authority = hash();
    Entry entry;
    entry.name = wish.name.empty() ? "peer-" + made.id : wish.name;
    entry.uses = wish.uses;
    entry.expires = now + wish.ttl;
    entry.group = wish.group;
    entry.secret_hash = hash_of({reinterpret_cast<const char*>(made.secret.data()), made.secret.size()});
    const bool is_taken = std::any_of(next.invitations.begin(), next.invitations.end(),
                                      [&](const auto& other) { return other.second.name == entry.name; }) ||
                          std::any_of(next.peers.begin(), next.peers.end(),
                                      [&](const auto& peer) { return peer.second.name == entry.name; }) ||
                          next.revoked.contains(entry.name);
    if (!is_name(entry.name) || entry.name.size() > 48 || entry.name.find('#') != std::string::npos)
        error = "the name may have up to 48 letters, digits, dots, underscores and hyphens";
    else if (is_taken)
        error = core::formatted("the name {} is used already; give another one", entry.name);
    else if (wish.uses == 0 || wish.uses > uses_max)
        error = core::formatted("an invitation is for 1 to {} peers", uses_max);
    else if (wish.ttl <= 0 || wish.ttl > ttl_max)
        error = "an invitation is valid for at most 30 days";
    else if (next.invitations.size() >= invitations_max || next.invitations.contains(made.id))
        error = "too many invitations; old ones are dropped a week after they expire";
    if (!error.empty()) return false;
    next.invitations[made.id] = entry;
    if (!impl_->store(std::move(next), error)) return false;
    text = to_text(made);
    return true;
}

bool Authority::withdraw(const std::string& id, std::string& error) {
    const std::lock_guard lock(impl_->disk_mutex);
    Tables next = impl_->copy();
    const auto found = next.invitations.find(id);
    if (found == next.invitations.end()) {
        error = core::formatted("no invitation has the id {}; `pccl-master invites` lists them", id);
        return false;
    }
    if (found->second.mark == Entry::Mark::open) found->second.mark = Entry::Mark::withdrawn;
    return impl_->store(std::move(next), error);
}

bool Authority::revoke(const std::string& name, std::vector<core::Uuid>& peers, std::string& error) {
    const std::lock_guard lock(impl_->disk_mutex);
    Tables next = impl_->copy();
    peers.clear();
    std::string invitation;
    for (auto& [id, entry] : next.invitations) {
        if (entry.name != name) continue;
        invitation = id;
        entry.mark = Entry::Mark::revoked;
    }
    for (const auto& [uuid, peer] : next.peers) {
        if (peer.name == name || (!invitation.empty() && peer.invitation == invitation)) peers.push_back(uuid);
    }
    if (invitation.empty() && peers.empty()) {
        error = core::formatted("nobody has the name {}; `pccl-master members` and `invites` list the names", name);
        return false;
    }
    next.revoked[name] = impl_->now() + impl_->options.certificate_life + clock_tolerance;
    return impl_->store(std::move(next), error);
}

std::vector<Authority::Listed> Authority::invitations() const {
    const std::lock_guard lock(impl_->table_mutex);
    std::vector<Listed> listed;
    for (const auto& [id, e] : impl_->tables.invitations)
        listed.push_back({id, e.name, impl_->tables.state_of(e, impl_->now()), e.uses, e.used, e.expires, e.group});
    return listed;
}

std::optional<std::string> Authority::name_of_peer(const core::Uuid& peer) const {
    const std::lock_guard lock(impl_->table_mutex);
    const auto found = impl_->tables.peers.find(peer);
    return found == impl_->tables.peers.end() ? std::nullopt : std::optional(found->second.name);
}

}  // namespace pccl::real::tls
